// Checkpoints of one file or many: what is saved is found again, stale files go, and an index that does not
// fit its shards is refused.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>

#include "graft/error.h"
#include "graft/safetensors.h"
#include "io/checkpoint_names.h"
#include "io/format/json.h"
#include "temp_dir.h"

namespace graft {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

template <class Kind, class Function>
void expect_error(Function function, std::initializer_list<const char*> words) {
  try {
    function();
    ADD_FAILURE() << "accepted, expected: " << *words.begin();
  } catch (const Kind& error) {
    const std::string what = error.what();
    for (const char* word : words) EXPECT_NE(what.find(word), what.npos) << word << " not in: " << what;
  }
}

void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }
Names names_in(const fs::path& dir) {
  Names names;
  for (const auto& entry : fs::directory_iterator(dir)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

at::Tensor filled(int64_t count, double value) { return at::full({count}, value, at::kFloat); }
const NamedTensors kThree = {{"a", filled(10, 1)}, {"b", filled(10, 2)}, {"c", filled(10, 3)}};

void expect_three(const fs::path& path, std::string_view stem = "model") {
  const auto checkpoint = Checkpoint::open(path, stem);
  EXPECT_EQ(checkpoint.names().size(), 3u);
  EXPECT_EQ(checkpoint.total_bytes(), 120u);
  for (const auto& [name, tensor] : kThree) EXPECT_TRUE(at::equal(checkpoint.tensor(name), tensor)) << name;
}

TEST(Checkpoint, OneFile) {
  const TempDir dir;
  save_checkpoint(dir / "new/folder", kThree);
  EXPECT_EQ(names_in(dir / "new/folder"), Names{"model.safetensors"});
  expect_three(dir / "new/folder");
  expect_three(dir / "new/folder/model.safetensors");
  const auto checkpoint = Checkpoint::open(dir / "new/folder");
  EXPECT_EQ(checkpoint.metadata(), (FileMetadata{{"format", "pt"}}));
  EXPECT_TRUE(checkpoint.contains("a"));
  EXPECT_FALSE(checkpoint.contains("d"));
  EXPECT_EQ(checkpoint.info("a").dtype, "F32");
  expect_error<FormatError>([&] { checkpoint.tensor("d"); }, {"[checkpoint]", "no tensor \"d\""});
}

TEST(Checkpoint, Shards) {
  const TempDir dir;
  save_checkpoint(dir.path(), kThree, {}, 80, "adapter_model");
  EXPECT_EQ(names_in(dir.path()),
            (Names{"adapter_model-00001-of-00002.safetensors", "adapter_model-00002-of-00002.safetensors",
                   "adapter_model.safetensors.index.json"}));
  expect_three(dir.path(), "adapter_model");
  expect_three(dir / "adapter_model.safetensors.index.json");
  EXPECT_EQ(Checkpoint::open(dir.path(), "adapter_model").files().size(), 2u);
  const auto index = io::read_json_file(dir / "adapter_model.safetensors.index.json");
  EXPECT_EQ(index["metadata"], (nlohmann::json{{"total_size", 120}, {"total_parameters", 30}}));
  EXPECT_EQ(index["weight_map"]["c"], "adapter_model-00002-of-00002.safetensors");
  expect_error<FormatError>([&] { Checkpoint::open(dir.path()); },
                            {"neither model.safetensors nor", "adapter_model-00001-of-00002.safetensors"});
}

TEST(Checkpoint, ATensorOverTheLimitHasItsOwnShard) {
  const TempDir dir;
  save_checkpoint(dir.path(), {{"s", filled(1, 0)}, {"big", filled(100, 1)}, {"t", filled(1, 0)}}, {}, 50);
  const auto index = io::read_json_file(dir / "model.safetensors.index.json");
  EXPECT_EQ(index["weight_map"]["big"],
            "model-00001-of-00002.safetensors");  // closed before the one being filled
  EXPECT_EQ(index["weight_map"]["s"], "model-00002-of-00002.safetensors");
  EXPECT_EQ(index["weight_map"]["t"], "model-00002-of-00002.safetensors");
}

TEST(Checkpoint, NoTensorsIsACheckpointToo) {
  const TempDir dir;
  save_checkpoint(dir.path(), {});
  EXPECT_TRUE(Checkpoint::open(dir.path()).names().empty());
}

TEST(Checkpoint, SavingAgainRemovesWhatIsStaleAndNothingElse) {
  const TempDir dir;
  const Names others = {"model-00001-of-00002.safetensors.bak", "model-1-of-2.safetensors",
                        "model_x-00001-of-00002.safetensors", "other.safetensors"};
  for (const auto& name : others) write(dir / name, "x");
  const auto with_others = [&](Names names) {
    names.insert(names.end(), others.begin(), others.end());
    std::sort(names.begin(), names.end());
    return names;
  };
  const Names one = with_others({"model.safetensors"});
  const Names two = with_others({"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                                 "model.safetensors.index.json"});
  const Names three = with_others({"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                   "model-00003-of-00003.safetensors", "model.safetensors.index.json"});
  // Every step from one form to another, the tensors themselves taken from the checkpoint being replaced.
  save_checkpoint(dir.path(), kThree);
  for (const auto& [bytes, expected] : std::vector<std::pair<uint64_t, Names>>{{1000, one},
                                                                               {80, two},
                                                                               {40, three},
                                                                               {40, three},
                                                                               {80, two},
                                                                               {1000, one},
                                                                               {40, three},
                                                                               {1000, one}}) {
    const auto old = Checkpoint::open(dir.path());
    NamedTensors tensors;
    for (const auto& name : old.names()) tensors.emplace_back(name, old.tensor(name));
    save_checkpoint(dir.path(), tensors, {}, bytes);
    EXPECT_EQ(names_in(dir.path()), expected) << bytes;
    expect_three(dir.path());
  }
}

TEST(Checkpoint, AFailedSaveLeavesTheOldOne) {
  const TempDir dir;
  save_checkpoint(dir.path(), kThree, {}, 80);
  const Names before = names_in(dir.path());
  NamedTensors bad = kThree;
  bad.emplace_back("d", at::Tensor());
  expect_error<UsageError>([&] { save_checkpoint(dir.path(), bad, {}, 80); }, {"\"d\"", "undefined"});
  bad.back() = {"a", filled(1, 0)};  // a name twice, in different shards
  expect_error<UsageError>([&] { save_checkpoint(dir.path(), bad, {}, 40); }, {"two tensors", "\"a\""});
  bad.back() = {"\xff", filled(1, 0)};
  expect_error<UsageError>([&] { save_checkpoint(dir.path(), bad, {}, 40); }, {"UTF-8"});
  EXPECT_EQ(names_in(dir.path()), before);
  expect_three(dir.path());
  for (const char* stem : {"", "..", "a/b", "a\\b"}) {
    expect_error<UsageError>([&] { save_checkpoint(dir.path(), kThree, {}, 80, stem); },
                             {"stem", "plain file name"});
    expect_error<UsageError>([&] { Checkpoint::open(dir.path(), stem); }, {"stem", "plain file name"});
  }
}

TEST(Checkpoint, TheSingleFileWinsOverAnIndex) {  // as in transformers
  const TempDir dir;
  save_checkpoint(dir.path(), kThree);
  write(dir / "model.safetensors.index.json", "not even JSON");
  expect_three(dir.path());
}

TEST(Checkpoint, RefusesPickles) {
  const TempDir dir;
  for (const std::string name : {"pytorch_model.bin", "x.pt", "x.pth", "x.ckpt"}) {
    write(dir / name, "x");
    expect_error<FormatError>(
        [&] { Checkpoint::open(dir / name); },
        {"[checkpoint]", name.c_str(), "pickle", "can run code", "safetensors.torch", "save_pretrained"});
  }
  write(dir / "optimizer.pt", "x");
  expect_error<FormatError>([&] { Checkpoint::open(dir.path()); },
                            {"pytorch_model.bin", "pickle", "can run code"});
}

TEST(Checkpoint, RefusesFoldersWithoutWeights) {
  const TempDir dir;
  expect_error<FormatError>([&] { Checkpoint::open(dir.path()); }, {"neither model.safetensors nor"});
  expect_error<IoError>([&] { Checkpoint::open(dir / "none"); }, {"No such file"});
}

/// A folder with two shards, {a, b} and {c}, whose index is the one given.
class CheckpointIndex : public testing::Test {
 protected:
  CheckpointIndex() {
    save_safetensors(dir_ / "1.safetensors", {kThree[0], kThree[1]});
    save_safetensors(dir_ / "2.safetensors", {kThree[2]});
  }
  void expect_refused(const std::string& index, std::initializer_list<const char*> words) {
    write(dir_ / "model.safetensors.index.json", index);
    expect_error<FormatError>([&] { Checkpoint::open(dir_.path()); }, words);
  }
  void expect_refused_map(const std::string& map, std::initializer_list<const char*> words) {
    expect_refused("{\"metadata\": {}, \"weight_map\": {" + map + "}}", words);
  }
  const std::string rest_ = "\"a\": \"1.safetensors\", \"b\": \"1.safetensors\", ";
  TempDir dir_;
};

TEST_F(CheckpointIndex, Fits) {
  write(dir_ / "model.safetensors.index.json", "{\"weight_map\": {" + rest_ + "\"c\": \"2.safetensors\"}}");
  expect_three(dir_.path());
}

TEST_F(CheckpointIndex, RefusesWhatIsNoIndex) {
  expect_refused("{", {"invalid JSON", "index.json"});
  expect_refused("[]", {"must be a JSON object"});
  expect_refused("{}", {"must have a weight_map"});
  expect_refused("{\"weight_map\": []}", {"must have a weight_map"});
  expect_refused("{\"weight_map\": {}}", {"must have a weight_map"});
  expect_refused("{\"weight_map\": {\"a\": 1}}", {"no file name for \"a\""});
  expect_refused_map(rest_ + "\"a\": \"2.safetensors\"", {"\"a\"", "twice"});
}

TEST_F(CheckpointIndex, RefusesNamesThatLeaveTheFolder) {
  for (const std::string name : {"../x.safetensors", "/etc/passwd", "a/../b.safetensors", "a//b.safetensors",
                                 "a/", "a\\\\b.safetensors", "..", ".", "", "x\\u0000.safetensors"}) {
    expect_refused_map(rest_ + "\"c\": \"" + name + "\"", {"sends \"c\"", "not a file beside the index"});
  }
}

TEST_F(CheckpointIndex, ShardsMayLieInFoldersBelow) {
  fs::create_directories(dir_ / "a" / "b");
  fs::rename(dir_ / "2.safetensors", dir_ / "a" / "b" / "2.safetensors");
  write(dir_ / "model.safetensors.index.json",
        "{\"weight_map\": {" + rest_ + "\"c\": \"a/b/2.safetensors\"}}");
  expect_three(dir_.path());
}

TEST_F(CheckpointIndex, RefusesWhatDoesNotFit) {
  expect_refused_map(rest_ + "\"c\": \"3.safetensors\"", {"shard \"3.safetensors\" is missing"});
  expect_refused_map(rest_ + "\"c\": \"1.safetensors\"", {"\"c\" is not in \"1.safetensors\""});
  expect_refused_map(rest_ + "\"c\": \"2.safetensors\", \"d\": \"2.safetensors\"",
                     {"\"d\" is not in \"2.safetensors\""});
  expect_refused_map("\"a\": \"1.safetensors\", \"c\": \"2.safetensors\"",
                     {"\"b\" in \"1.safetensors\"", "not in the index"});
  save_safetensors(dir_ / "2.safetensors", {kThree[1], kThree[2]});
  expect_refused_map(rest_ + "\"c\": \"2.safetensors\"",
                     {"\"b\" is in two shards", "1.safetensors", "2.safetensors"});
  write(dir_ / "2.safetensors", "damaged");
  expect_refused_map(rest_ + "\"c\": \"2.safetensors\"", {"2.safetensors", "too few"});
  expect_refused_map("\"a\": \"pytorch_model-00001-of-00002.bin\"", {"pickle", "can run code"});
}

TEST(CheckpointNames, Shards) {
  EXPECT_EQ(io::shard_name("model", 2, 13), "model-00002-of-00013.safetensors");
  EXPECT_EQ(io::shard_name("model", 2, 123456), "model-00002-of-123456.safetensors");
  EXPECT_TRUE(io::is_shard_name("model-00002-of-00013.safetensors", "model"));
  EXPECT_TRUE(io::is_shard_name("model-00002-of-123456.safetensors", "model"));
  for (const char* name :
       {"model.safetensors", "model-.safetensors", "model-00002-of-00013.bin", "model-2-of-13.safetensors",
        "model-00002-of-.safetensors", "model-0000a-of-00013.safetensors", "model", "", "-of-.safetensors",
        "modelx-00002-of-00013.safetensors", "odel-00002-of-00013.safetensors"}) {
    EXPECT_FALSE(io::is_shard_name(name, "model")) << name;
  }
}

}  // namespace
}  // namespace graft
