// What surrounds templates; tests/oracle/test_chat_template.py has the comparison with transformers, and
// hostile ones.
#include <graft/chat_template.h>
#include <graft/error.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "temp_dir.h"

namespace graft {
namespace {

std::shared_ptr<const ChatTemplate> made(const std::string& source) {
  try {
    return ChatTemplate::from_source(source, {{"bos_token", "<s>"}});
  } catch (const Error& error) {
    if (std::string_view(error.what()).find("built without minja") != std::string_view::npos) return nullptr;
    throw;
  }
}

TEST(ChatTemplate, RendersMessages) {
  const auto chat = made(
      "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
      "{% if add_generation_prompt %}assistant:{% endif %}");
  if (!chat) GTEST_SKIP() << "without minja";
  EXPECT_EQ(chat->render({{"user", "a {{ b }}"}}), "<s>user: a {{ b }}\n");
  EXPECT_EQ(chat->render({{"user", "ä"}}, {.add_generation_prompt = true}), "<s>user: ä\nassistant:");
  EXPECT_FALSE(chat->marks_generation());
  EXPECT_THROW(chat->render_json("{}", {}), UsageError);
  EXPECT_THROW(chat->render_json("[1]", {}), UsageError);
  EXPECT_THROW(chat->render_json("[", {}), FormatError);
  EXPECT_THROW(chat->render({}, {.tools = "{}"}), UsageError);
}

TEST(ChatTemplate, KeysKeepTheirOrderAndMarksTheirPlaces) {
  const auto chat =
      made("{{ tools | tojson }}|{% generation %}{{ messages[0].content }}{% endgeneration %}.");
  if (!chat) GTEST_SKIP() << "without minja";
  const auto got =
      chat->render_json(R"([{"role": "user", "content": "xyz"}])", {.tools = R"([{"b": 1, "a": [null]}])"});
  EXPECT_EQ(got.text, R"([{"b": 1, "a": [null]}]|xyz.)");
  ASSERT_EQ(got.generated.size(), 1U);
  EXPECT_EQ(got.text.substr(got.generated[0].first, got.generated[0].second - got.generated[0].first), "xyz");
  EXPECT_TRUE(chat->marks_generation());
}

TEST(ChatTemplate, LimitsEndARenderingAndNothingElse) {
  const auto loops = made("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}");
  if (!loops) GTEST_SKIP() << "without minja";
  try {
    loops->render({});
    FAIL() << "it ended by itself";
  } catch (const UsageError& error) {
    // Which of the limits comes first depends on the machine.
    const std::string what = error.what();
    EXPECT_TRUE(what.find("steps") != std::string::npos || what.find("seconds") != std::string::npos) << what;
  }
  EXPECT_EQ(made("{{ 1 + 1 }}")->render({}), "2");
}

TEST(ChatTemplate, ThreadsShareATemplate) {
  const auto chat = made(
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}");
  if (!chat) GTEST_SKIP() << "without minja";
  std::vector<std::thread> threads;
  std::vector<std::string> got(4);
  threads.reserve(got.size());
  for (size_t i = 0; i < got.size(); ++i)
    threads.emplace_back([&, i] { got[i] = chat->render(std::vector<ChatMessage>(i + 1, {"user", "x"})); });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(got, (std::vector<std::string>{"1", "2", "3", "4"}));
}

TEST(ChatTemplate, AFolderWithoutOneSaysSo) {
  const TempDir folder;
  EXPECT_FALSE(ChatTemplate::exists(folder.path()));
  EXPECT_THROW(ChatTemplate::from_pretrained(folder.path()), ConfigError);
  std::ofstream(folder.path() / "tokenizer_config.json") << R"({"chat_template": 5})";
  EXPECT_THROW(ChatTemplate::from_pretrained(folder.path()), ConfigError);
}

}  // namespace
}  // namespace graft
