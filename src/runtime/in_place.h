// Whether a result can be written straight into the input whose new value it is.
#pragma once
#include "codegen/fusion.h"
#include "ir/graph.h"

namespace graft::runtime {

/// A kernel makes the result, nobody reads the input afterwards, and the kernel itself reads it only at the
/// very place it writes.
bool kernel_may_write_into(const ir::Graph& graph, const codegen::Schedule& schedule, const ir::Value& result,
                           const ir::Value& input);

/// The result is an index_copy into the input: some rows are written anew (a key/value cache's), and the
/// others may stay where they are, since nobody reads the input as it was afterwards.
bool rows_may_be_written_into(const ir::Graph& graph, const codegen::Schedule& schedule,
                              const ir::Value& result, const ir::Value& input);

/// The result's memory is another value's, which was written before, while the input may still be needed.
bool lies_in_another(const ir::Value& result, const codegen::Schedule& schedule);

/// How often a value is read, itself or through views.
size_t reads_of(const ir::Value& value);

}  // namespace graft::runtime
