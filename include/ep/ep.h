// SPDX-License-Identifier: Apache-2.0
// The whole public API.
#pragma once

#include <ep/bootstrap.h>
#include <ep/config.h>
#include <ep/expert_map.h>
#include <ep/group.h>
#include <ep/layout.h>
#include <ep/log.h>
#include <ep/moe.h>
#include <ep/sm_budget.h>
#include <ep/status.h>
#include <ep/tensor.h>
#include <ep/version.h>
