#include "base/printable.h"

#include <gtest/gtest.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/json_text.h"

namespace plimsoll::engine {
namespace {

TEST(Printable, ControlsBecomeLetters) {
  EXPECT_EQ(printable("a\x1b[31mb\x07\x7f"), "a\\x1b[31mb\\x07\\x7f");
  EXPECT_EQ(printable("one\ntwo"), "one\\ntwo");
  EXPECT_EQ(printable_lines("one\ntwo\r"), "one\ntwo\\x0d");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m");                                  // the 8-bit CSI
  EXPECT_EQ(printable("\xe2\x80\xae.exe"), "\\u202e.exe");  // reverses the writing direction
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
}

TEST(Printable, OtherTextStaysAsItIs) {
  for (const char* text : {"", "dense_1/kernel", "Größe", "日本語", "\U0001f6a2", "\\x1b"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, WhatIsNotUtf8IsShownByteByByte) {
  EXPECT_EQ(printable("no\xff"), "no\\xff");
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");                    // '/' in an overlong encoding
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // half of a UTF-16 surrogate pair
  EXPECT_EQ(printable("\xe6\x97"), "\\xe6\\x97");                    // truncated
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond Unicode
}

TEST(Printable, AnErrorHasNoLineThatAFileWrote) {
  const Error error{ErrorCode::kBadConfig, "layer a\nerror P101: b\x1b[2J", {"fact\x1b"}, {"try\x1b"}};
  EXPECT_EQ(to_text(error), "error P204: layer a\\nerror P101: b\\x1b[2J\n  fact\\x1b\n  try: try\\x1b\n");
}

TEST(JsonText, HoldsAnythingAndNoControls) {
  const nlohmann::json json = {{"path", "no\xff"}, {"name", "a\x1b\x7f\xc2\x9b"}};
  const std::string text = json_text(json, -1);
  EXPECT_EQ(text, "{\"name\":\"a\\u001b\\u007f\\u009b\",\"path\":\"no\xef\xbf\xbd\"}");
  EXPECT_EQ(nlohmann::json::parse(text).at("name"), "a\x1b\x7f\xc2\x9b");
}

// The second digest comes from the author's own program, MurmurHash3_x64_128 with seed 0.
TEST(Digest, IsMurmur3) {
  EXPECT_EQ(Digest().text(), "00000000000000000000000000000000");
  Digest digest;
  const std::string_view text = "The quick brown fox jumps over the lazy dog";
  digest.add(std::as_bytes(std::span(text)));
  EXPECT_EQ(digest.text(), "e34bbc7bbc071b6c7a433ca9c49a9347");
}

TEST(Digest, DoesNotDependOnHowTheBytesCome) {
  const std::string text(1000, 'x');
  Digest whole;
  whole.add(std::as_bytes(std::span(text)));
  for (const size_t piece : {1, 7, 16, 17, 999}) {
    Digest parts;
    for (size_t at = 0; at < text.size(); at += piece)
      parts.add(std::as_bytes(std::span(text).subspan(at, std::min(piece, text.size() - at))));
    EXPECT_EQ(parts.text(), whole.text()) << piece;
  }
}

}  // namespace
}  // namespace plimsoll::engine
