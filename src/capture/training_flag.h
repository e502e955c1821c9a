// Which modules' training flags captured code has read.
//
// A function may reach a module that nobody named to the compiler; its dropout and its batch normalisation
// ask the module whether it is in training, and the graph has the answer built in. torch's own modules ask
// through Module::is_training(), a virtual function of libtorch's that every module's table points to: this
// library brings its own definition of it, which the dynamic linker puts in that place for all of them, and
// which tells StateReads of the question.
#pragma once
#include <torch/nn/module.h>

namespace graft {

/// The flag itself, without the question being noted.
bool training_of(const torch::nn::Module& module);

/// Whether questions of torch's own modules are noted: not where the program was linked so that libtorch
/// comes before this library.
bool training_flags_are_seen();

}  // namespace graft
