// SPDX-License-Identifier: Apache-2.0
// Reads and writes whole files with stdio.
#include "bench/file_bytes.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace ep::bench {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using FilePtr = std::unique_ptr<std::FILE, CloseFile>;

Status file_error(const char* action, const std::string& path) {
  const int error = errno;
  return Status(Errc::kInvalidArgument,
                std::string("cannot ") + action + " '" + path + "': " + std::strerror(error),
                error);
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  constexpr std::size_t kChunkBytes = 1 << 16;
  const FilePtr file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return file_error("read", path);
  std::string content;
  std::size_t num_read = kChunkBytes;
  while (num_read == kChunkBytes) {
    const std::size_t end = content.size();
    content.resize(end + kChunkBytes);
    num_read = std::fread(content.data() + end, 1, kChunkBytes, file.get());
    content.resize(end + num_read);
  }
  if (std::ferror(file.get()) != 0) return file_error("read", path);
  return content;
}

Status write_file(const std::string& path, std::string_view content) {
  FilePtr file(std::fopen(path.c_str(), "wb"));
  if (file == nullptr) return file_error("write", path);
  const bool written = std::fwrite(content.data(), 1, content.size(), file.get()) == content.size();
  if (!written || std::fclose(file.release()) != 0) return file_error("write", path);
  return {};
}

}  // namespace ep::bench
