// The page of a training run: curves and numbers in one HTML file that needs nothing else, neither script nor
// network, so that it also prints and renders as an image.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "graft/trainer.h"
#include "train/subject.h"

namespace graft::train {

struct ReportPage {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;  ///< the table at the top
  std::vector<TrainingStep> steps;
  std::string program;  ///< what the compiler made of it; empty: it was not compiled
};

/// Of the steps of a run, with the counts of what this process has compiled.
ReportPage page_of(const std::vector<TrainingStep>& log, const Subject& subject,
                   const TrainingArguments& arguments);

std::string to_html(const ReportPage& page);

}  // namespace graft::train
