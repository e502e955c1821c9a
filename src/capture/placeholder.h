// Tensors that stand for what nobody has computed: code can ask for their sizes, and pass them on; reading
// their elements is an error.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "capture/trace.h"

namespace graft {

/// Stands for what a call makes. `of`: what it shares its memory with; undefined if with nothing.
at::Tensor make_placeholder(const Trace::Result& result, const at::Tensor& of);

/// Whether an error says that somebody asked for a placeholder's elements.
bool is_about_a_placeholder(const std::string& message);

/// What stands over a placeholder's own memory shows these elements from now on: the placeholder, views of
/// it, what autograd has saved of it. Histories stay as they are. What was made lies as the placeholder does.
void lend_elements(c10::StorageImpl& to, const at::Tensor& made);

/// The placeholders, and other tensors over their memory, become what was made: with its elements, its
/// history, and what it is a view of (of what was made, that is of the placeholder).
void fill_placeholders(const std::vector<at::Tensor>& placeholders, const std::vector<at::Tensor>& made);

}  // namespace graft
