// Whether a result can be written straight into the input whose new value it is: only if everybody has read
// an element of the input before it is written.
#pragma once
#include <optional>

#include "codegen/fusion.h"
#include "ir/graph.h"

namespace graft::plan {

/// Of a result of the graph and the input whose new value it is: whether some other result shows either
/// one's memory, or the result is given back a second time: what the caller gets would change with the input.
bool is_seen_otherwise(const ir::Graph& graph, const ir::Value& result, const ir::Value& input);

/// The step of the schedule from which on the input has the result's elements, if they can be written there:
/// a kernel makes the result, no step after it touches the input, and the kernel itself reads it only at the
/// very place it writes, before it does.
std::optional<size_t> kernel_that_may_write_into(const ir::Graph& graph, const codegen::Schedule& schedule,
                                                 const ir::Value& result, const ir::Value& input);

/// The same of a result that is an index_copy into the input: some rows are written again (a key/value
/// cache's), and the others may stay where they are, since nobody reads the input as it was afterwards.
std::optional<size_t> call_that_may_write_rows_into(const ir::Graph& graph, const codegen::Schedule& schedule,
                                                    const ir::Value& result, const ir::Value& input);

/// Whether the step's kernel may write its result where a value lies that it reads and nobody needs after it.
bool may_be_written_over(const codegen::Step& step, const ir::Value& result, const ir::Value& read);

/// The result's memory is another value's, which was written before, while the input may still be needed.
bool lies_in_another(const ir::Value& result, const codegen::Schedule& schedule);

/// Each element has memory of its own.
bool is_injective(const ir::TensorType& type);

/// How often a value is read, itself or through views.
size_t reads_of(const ir::Value& value);

}  // namespace graft::plan
