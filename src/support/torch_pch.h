// The one place where all of torch is read: precompiled, it costs seconds a file instead of half a minute.
#pragma once
#include <torch/torch.h>
