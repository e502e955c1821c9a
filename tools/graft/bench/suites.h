// The suites of `graft bench`: lists of rows by name, and the choice among them.
#pragma once
#include "bench/row.h"

namespace graft::cli::bench {

/// WrongUsage that lists the suites there are. `tiny` is for tests: the same rows over models of no size.
/// `model_file`: of the suite "decode", a GGUF file; empty: random weights. `device`: where its models are;
/// empty: where the suite has them.
std::vector<Row> suite_named(const std::string& name, bool tiny, const std::string& model_file,
                             const std::string& device);

/// The rows that `only` names; all rows when it is empty. WrongUsage for a name that fits none.
std::vector<Row> chosen(const std::vector<Row>& rows, const std::vector<std::string>& only);

/// Rows that are measured in turns with each other: those that are over the same row, and it.
std::vector<std::vector<Row>> grouped(const std::vector<Row>& rows);

}  // namespace graft::cli::bench
