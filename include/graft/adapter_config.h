// The configuration of an adapter: the content of PEFT's adapter_config.json, field by field, and for every
// method a plain struct with PEFT's names and defaults:
//
//   graft::get_peft_model(model, graft::OFTConfig{.oft_block_size = 8, .target_modules = "all-linear"});
//
// A field that is left alone takes PEFT's default. A field of a file that nobody knows is an error unless it
// is null, false or empty (newer versions of PEFT add fields), and so is a value that a field cannot have.
//
// The structs convert to an AdapterConfig, which checks them. Fields of PEFT's that ask for what graft does
// not have, and those that only say where an adapter comes from, are not here. An empty text or list is None.
#pragma once
#include "graft/adapter_config/config.h"
#include "graft/adapter_config/lora.h"
#include "graft/adapter_config/low_rank.h"
#include "graft/adapter_config/prompts.h"
#include "graft/adapter_config/weights.h"
