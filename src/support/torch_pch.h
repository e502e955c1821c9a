// The one place where torch is read: precompiled, it costs seconds a file instead of half a minute. Not
// torch/torch.h: data loaders, optimisers and every layer of torch::nn would double what each file pays for
// templates that nobody here uses. JSON and paths are here because most files reach them, too.
#pragma once
#include <ATen/ATen.h>
#include <torch/autograd.h>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <filesystem>
#include <nlohmann/json.hpp>
