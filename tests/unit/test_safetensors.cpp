// Tensors in files: what is saved comes back bit for bit, without copies, and bad arguments and checkpoints
// are refused by name.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "graft/error.h"
#include "graft/safetensors.h"
#include "temp_dir.h"

namespace graft {
namespace {

namespace fs = std::filesystem;

const std::vector<at::ScalarType> kTypes = {at::kBool,
                                            at::kByte,
                                            at::kChar,
                                            at::kUInt16,
                                            at::kShort,
                                            at::kUInt32,
                                            at::kInt,
                                            at::kUInt64,
                                            at::kLong,
                                            at::kHalf,
                                            at::kBFloat16,
                                            at::kFloat,
                                            at::kDouble,
                                            at::kComplexFloat,
                                            at::kFloat8_e4m3fn,
                                            at::kFloat8_e5m2,
                                            at::kFloat8_e4m3fnuz,
                                            at::kFloat8_e5m2fnuz,
                                            at::kFloat8_e8m0fnu,
                                            at::kFloat4_e2m1fn_x2};

/// Random bytes, of whatever type: bits must survive, NaNs included.
at::Tensor random_bits(at::IntArrayRef shape, at::ScalarType type) {
  at::Tensor tensor = at::empty(shape, at::TensorOptions().dtype(type));
  auto* bytes = static_cast<uint8_t*>(tensor.data_ptr());
  const at::Tensor random =
      at::randint(0, type == at::kBool ? 2 : 256, {static_cast<int64_t>(tensor.nbytes())}, at::kByte);
  if (tensor.nbytes() > 0) std::memcpy(bytes, random.data_ptr(), tensor.nbytes());
  return tensor;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.is_contiguous() &&
         b.is_contiguous() &&
         (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

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

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

TEST(Safetensors, EveryDtypeComesBack) {
  const TempDir dir;
  NamedTensors tensors;
  for (const auto type : kTypes) {
    for (const auto& shape : std::vector<std::vector<int64_t>>{{3, 4}, {0, 2}, {1}, {}}) {
      if (type == at::kFloat4_e2m1fn_x2 && shape.empty()) continue;
      tensors.emplace_back(std::string(c10::toString(type)) + std::to_string(tensors.size()),
                           random_bits(shape, type));
    }
  }
  save_safetensors(dir / "a.safetensors", tensors, {{"format", "pt"}, {"k", "é\n"}});
  const auto file = SafetensorsFile::open(dir / "a.safetensors");
  EXPECT_EQ(file->names().size(), tensors.size());
  EXPECT_EQ(file->metadata(), (FileMetadata{{"format", "pt"}, {"k", "é\n"}}));
  for (const auto& [name, tensor] : tensors) {
    EXPECT_TRUE(same_bits(file->tensor(name), tensor)) << name;
    EXPECT_EQ(file->info(name).scalar_type, tensor.scalar_type());
    EXPECT_EQ(file->info(name).bytes, tensor.nbytes());
  }
}

TEST(Safetensors, InfoSpeaksAsTheFileDoes) {
  const TempDir dir;
  save_safetensors(dir / "a", {{"x", at::zeros({2, 3}, at::kBFloat16)},
                               {"f4", random_bits({2, 3}, at::kFloat4_e2m1fn_x2)}});
  const auto file = SafetensorsFile::open(dir / "a");
  EXPECT_EQ(file->info("x").dtype, "BF16");
  EXPECT_EQ(file->info("x").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(file->info("f4").dtype, "F4");
  EXPECT_EQ(file->info("f4").shape, (std::vector<int64_t>{2, 6}));
  EXPECT_EQ(file->tensor("f4").sizes(), (at::IntArrayRef{2, 3}));
  EXPECT_TRUE(file->contains("x"));
  EXPECT_FALSE(file->contains("y"));
  expect_error<FormatError>([&] { file->tensor("y"); }, {"[safetensors]", "no tensor \"y\""});
  expect_error<FormatError>([&] { file->info("y"); }, {"no tensor \"y\""});
}

TEST(Safetensors, TensorsAreViewsOfTheFileAndKeepItAlive) {
  const TempDir dir;
  save_safetensors(dir / "a", {{"x", at::arange(1000, at::kFloat)}});
  auto file = SafetensorsFile::open(dir / "a");
  at::Tensor first = file->tensor("x"), second = file->tensor("x");
  EXPECT_EQ(first.const_data_ptr(), second.const_data_ptr());
  file.reset();
  fs::remove(dir / "a");
  EXPECT_EQ(first.sum().item<double>(), 499500.0);
}

TEST(Safetensors, WritingInPlaceNeverReachesTheFile) {
  const TempDir dir;
  save_safetensors(dir / "a", {{"x", at::ones({4000})}});
  const std::string before = content_of(dir / "a");
  at::Tensor x = SafetensorsFile::open(dir / "a")->tensor("x");
  x.mul_(7);
  EXPECT_EQ(x.sum().item<double>(), 28000.0);
  EXPECT_EQ(content_of(dir / "a"), before);
  save_safetensors(dir / "a", {{"x", x}});  // over the file it came from
  EXPECT_EQ(SafetensorsFile::open(dir / "a")->tensor("x").sum().item<double>(), 28000.0);
}

/// Older writers do not pad the header, nor sort by width.
TEST(Safetensors, UnalignedDataAreCopied) {
  const TempDir dir;
  const std::string header =
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"b\":{\"dtype\":\"F64\",\"shape\":[2],"
      "\"data_offsets\":[1,17]}}";
  const double values[2] = {1.5, -2.5};
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  write(dir / "a", bytes + header + "A" + std::string(reinterpret_cast<const char*>(values), 16));
  const auto file = SafetensorsFile::open(dir / "a");
  EXPECT_EQ(file->tensor("b")[0].item<double>(), 1.5);
  EXPECT_EQ(file->tensor("b")[1].item<double>(), -2.5);
  EXPECT_EQ(file->tensor("a")[0].item<int>(), 'A');
}

TEST(Safetensors, TypesTorchLacksAreRefusedOnlyWhenTaken) {
  const TempDir dir;
  const std::string header =
      "{\"a\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,3]},\"b\":{\"dtype\":\"F4\",\"shape\":"
      "[2,1],\"data_offsets\":[3,4]}}";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  write(dir / "a", bytes + header + "1234");
  const auto file = SafetensorsFile::open(dir / "a");
  EXPECT_EQ(file->info("a").scalar_type, at::ScalarType::Undefined);
  expect_error<FormatError>([&] { file->tensor("a"); }, {"F6_E2M3", "torch does not have"});
  expect_error<FormatError>([&] { file->tensor("b"); }, {"F4", "odd last dimension"});
}

TEST(Safetensors, EmptyTensorsOfHugeShape) {
  const TempDir dir;
  const std::string header =
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[0,1099511627776,1099511627776],\"data_offsets\":[0,0]},"
      "\"b\":{\"dtype\":\"F4\",\"shape\":[3,0],\"data_offsets\":[0,0]}}";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  write(dir / "a", bytes + header);
  const auto file = SafetensorsFile::open(dir / "a");
  EXPECT_EQ(file->tensor("a").size(2), int64_t{1} << 40);
  EXPECT_EQ(file->tensor("b").sizes(), (at::IntArrayRef{3, 0}));
}

TEST(Safetensors, AnyStrideIsSavedAsItReads) {
  const TempDir dir;
  const at::Tensor base = at::randn({6, 8}), complex = at::randn({5}, at::kComplexFloat);
  const NamedTensors tensors = {{"transposed", base.t()},
                                {"strided", base.slice(1, 1, 8, 3)},
                                {"expanded", base[0].expand({4, 8})},
                                {"conj", complex.conj()},
                                {"imag_of_conj", at::imag(complex.conj())},
                                {"grad", base.clone().requires_grad_()},
                                {"zero", at::_efficientzerotensor({3}, at::kFloat)}};
  save_safetensors(dir / "a", tensors);
  const auto file = SafetensorsFile::open(dir / "a");
  for (const auto& [name, tensor] : tensors) {
    EXPECT_TRUE(at::equal(file->tensor(name), at::zeros_like(tensor).copy_(tensor).detach())) << name;
  }
}

TEST(Safetensors, WhatCannotBeSavedIsRefusedAndNothingIsLeft) {
  const TempDir dir;
  const at::Tensor x = at::ones({2, 2});
  const auto save = [&](const at::Tensor& tensor, const std::string& name = "bad") {
    return [&, tensor, name] { save_safetensors(dir / "a", {{"x", x}, {name, tensor}}); };
  };
  expect_error<UsageError>(save({}), {"\"bad\"", "undefined"});
  expect_error<UsageError>(save(x.to_sparse()), {"\"bad\"", "sparse", "to_dense"});
  expect_error<UsageError>(save(at::quantize_per_tensor(x, 0.1, 0, at::kQInt8)), {"\"bad\"", "quantized"});
  expect_error<UsageError>(save(x.to("meta")), {"\"bad\"", "meta"});
  expect_error<UsageError>(save(at::_nested_tensor_from_tensor_list({x, x})), {"\"bad\"", "nested"});
  expect_error<UsageError>(save(x.to(at::kComplexDouble)),
                           {"\"bad\"", "no dtype for", "ComplexDouble", "F32"});
  expect_error<UsageError>(save(x, "x"), {"two tensors", "\"x\""});
  expect_error<UsageError>(save(x, "__metadata__"), {"__metadata__"});
  expect_error<UsageError>(save(x, "\xff"), {"not UTF-8"});
  EXPECT_TRUE(fs::is_empty(dir.path()));
  expect_error<IoError>([&] { save_safetensors(dir / "none/a", {{"x", x}}); }, {"No such file"});
}

TEST(Safetensors, MalformedFilesAreNamed) {
  const TempDir dir;
  write(dir / "bad.safetensors", "1234");
  expect_error<FormatError>([&] { SafetensorsFile::open(dir / "bad.safetensors"); },
                            {"bad.safetensors", "too few"});
  expect_error<IoError>([&] { SafetensorsFile::open(dir / "none"); }, {"No such file"});
}

RC_GTEST_PROP(SafetensorsProperty, WhatIsSavedComesBack, ()) {
  const TempDir dir;
  NamedTensors tensors;
  const auto names = *rc::gen::unique<std::vector<std::string>>(rc::gen::string<std::string>());
  for (const auto& raw : names) {
    std::string name;
    for (const char c : raw)
      name += static_cast<char>(c & 0x7f);  // any ASCII; other texts are tested on the header
    const bool taken =
        std::any_of(tensors.begin(), tensors.end(), [&](const auto& t) { return t.first == name; });
    if (taken) continue;
    auto shape =
        *rc::gen::resize(4, rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, 5)));
    const auto type = *rc::gen::elementOf(kTypes);
    if (shape.empty() && type == at::kFloat4_e2m1fn_x2) shape = {1};
    tensors.emplace_back(name, random_bits(shape, type));
  }
  save_safetensors(dir / "a", tensors);
  const auto file = SafetensorsFile::open(dir / "a");
  RC_ASSERT(file->names().size() == tensors.size());
  for (const auto& [name, tensor] : tensors) RC_ASSERT(same_bits(file->tensor(name), tensor));
}

}  // namespace
}  // namespace graft
