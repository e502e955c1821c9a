// graft merge: adapters into a model's weights, as a plain checkpoint.
#include <iostream>

#include "command.h"
#include "flags.h"
#include "graft/error.h"
#include "graft/peft.h"
#include "io/format/atomic_file.h"
#include "io/format/hub_cache.h"
#include "io/format/mapped_file.h"
#include "io/gguf.h"
#include "io/tokenizer/gguf_tokenizer.h"
#include "output_folder.h"

namespace graft::cli {
namespace {
namespace fs = std::filesystem;

struct MergeFlags {
  ModelFlags model;
  std::vector<std::string> adapters;
  std::string output;
};

/// What belongs to a checkpoint beside its weights and its config: the tokenizer, how to generate.
void copy_companions(const fs::path& from, const fs::path& to) {
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
        "vocab.json", "vocab.txt", "merges.txt", "tokenizer.model", "spiece.model", "chat_template.jinja",
        "generation_config.json", "preprocessor_config.json"})
    if (fs::exists(from / name)) {
      const io::MappedFile file(from / name);
      io::AtomicFile copy(to / name);
      copy.write(file.bytes());
      copy.commit();
    }
}

/// The same of a GGUF file, which holds the tokenizer in its header.
void write_companions(const fs::path& gguf, const fs::path& to) {
  const auto file = io::GgufFile::open(gguf);
  for (const auto& [name, document] : io::gguf_tokenizer_files(file->header(), file->label()))
    io::write_file_atomically(to / name, document.dump(2) + "\n");
}

void run(const MergeFlags& flags) {
  const auto specs = adapter_specs(flags.adapters, /*weighted=*/true);
  refuse_overwriting(flags.output, flags.model.model);
  for (const auto& spec : specs) refuse_overwriting(flags.output, spec.dir);
  const OutputFolder output(flags.output);
  const auto model = flags.model.load();
  PeftModel peft(model);
  std::vector<std::string> names;
  for (const auto& spec : specs) {
    load_adapter(peft, spec, flags.model.model, /*trainable=*/false);
    if (spec.weight != 1) peft.scale_adapter(spec.name, spec.weight);
    names.push_back(spec.name);
  }
  refuse_untrained(*model, &peft, "the merged model would have a part that was never trained");
  const auto merged = peft.merge_and_unload({.adapter_names = names});
  output.fill([&](const fs::path& folder) {
    merged->save_pretrained(folder);
    const auto from = io::local_path(flags.model.model);
    if (const auto gguf = io::gguf_file_at(from))
      write_companions(*gguf, folder);
    else if (fs::is_directory(from))
      copy_companions(from, folder);
  });
}

}  // namespace

void add_merge(CLI::App& app) {
  auto* command = app.add_subcommand("merge", "Merge adapters into a model's weights: a plain checkpoint");
  auto flags = std::make_shared<MergeFlags>();
  flags->model.add_to(*command);
  flags->model.add_task_to(*command);
  command
      ->add_option(
          "--adapter", flags->adapters,
          "Merge this adapter, [NAME=]DIR[:WEIGHT]; may be given several times. WEIGHT scales what it adds")
      ->required();
  command->add_option("--output", flags->output, "Write the checkpoint to this folder")->required();
  command->footer(
      "Example:\n  graft merge --model checkpoints/llama --adapter adapters/de:0.7 --output merged");
  command->callback([flags] { run(*flags); });
}

}  // namespace graft::cli
