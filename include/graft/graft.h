// Start here: graft's public interface.
//
//   model.h        load, run and save models: AutoModelForCausalLM::from_pretrained(dir)
//   compile.h      make a function or a module fast: compile(model), compile_regions(model)
//   compile_step.h a whole training step as one program
//   peft.h         adapters: get_peft_model(model, LoraConfig{...}), load_adapter(dir, name)
//   adapter_config.h  the configuration of every adapter method, as plain structs
//   generate.h     more tokens for a prompt: generate(*model, {.input_ids = ids}, config), Decoder
//   trainer.h      the training loop: Trainer{peft, {.learning_rate = 1e-4}, read_tokens(file)}.train()
//   process_group.h several processes that train together: ProcessGroup::connect()
//   accelerator.h  a training loop of one's own: Accelerator, as Accelerate has it
//   leaves.h       which tensors a type of yours holds, for compile()
//   cache.h        key/value caches for decoding
//   tokenizer.h    text to token ids and back
//   chat_template.h  conversations to text
//   config.h       config.json
//   safetensors.h  tensor files
//   error.h        what is thrown
//   version.h      which build this is
#pragma once
#include "graft/accelerator.h"
#include "graft/cache.h"
#include "graft/chat_template.h"
#include "graft/compile.h"
#include "graft/compile_step.h"
#include "graft/config.h"
#include "graft/error.h"
#include "graft/generate.h"
#include "graft/leaves.h"
#include "graft/model.h"
#include "graft/peft.h"
#include "graft/process_group.h"
#include "graft/safetensors.h"
#include "graft/tokenizer.h"
#include "graft/trainer.h"
#include "graft/version.h"
