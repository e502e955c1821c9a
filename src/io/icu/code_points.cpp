#include "io/icu/code_points.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <utility>

#include "graft/error.h"
#include "io/tokenizer/bert_text.h"

namespace graft::io {
namespace {

bool exists_in_unicode(char32_t c, int major) {
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(c), age);
  return age[0] != 0 && (age[0] < major || (age[0] == major && age[1] == 0));
}

uint32_t category_mask_of_unicode_8(char32_t c) {
  switch (c) {
    case 0x1734:
      return U_GC_MN_MASK;  // now Mc
    case 0x166D:
    case 0x111C9:
      return U_GC_PO_MASK;  // now So and Mn
    case 0x1885:
    case 0x1886:
      return U_GC_LO_MASK;  // now Mn
    case 0xA9BD:
      return U_GC_MC_MASK;  // now Mn
    default:
      return exists_in_unicode(c, 8) ? U_GET_GC_MASK(static_cast<UChar32>(c)) : U_GC_CN_MASK;
  }
}

// Capital letters of Unicode 16 and 17, for an ICU that is older.
char32_t lower_of_unicode_17(char32_t c) {
  switch (c) {
    case 0x1C89:
    case 0xA7CC:
    case 0xA7CE:
    case 0xA7D2:
    case 0xA7D4:
    case 0xA7DA:
      return c + 1;
    case 0xA7CB:
      return 0x264;
    case 0xA7DC:
      return 0x19B;
    default:
      break;
  }
  if (c >= 0x10D50 && c <= 0x10D65) return c + 0x20;  // Garay
  if (c >= 0x16EA0 && c <= 0x16EB8) return c + 0x1B;  // Beria Erfe
  return static_cast<char32_t>(u_tolower(static_cast<UChar32>(c)));
}

// Letters, marks and digits of Unicode 15.1 and 16, for an ICU that is older.
bool is_word_since_unicode_15_1(char32_t c) {
  constexpr std::pair<char32_t, char32_t> ranges[] = {
      {0x897, 0x897},     {0x1C89, 0x1C8A},   {0xA7CB, 0xA7CD},   {0xA7DA, 0xA7DC},   {0x105C0, 0x105F3},
      {0x10D40, 0x10D65}, {0x10D69, 0x10D6D}, {0x10D6F, 0x10D85}, {0x10EC2, 0x10EC4}, {0x10EFC, 0x10EFC},
      {0x11380, 0x11389}, {0x1138B, 0x1138B}, {0x1138E, 0x1138E}, {0x11390, 0x113B5}, {0x113B7, 0x113C0},
      {0x113C2, 0x113C2}, {0x113C5, 0x113C5}, {0x113C7, 0x113CA}, {0x113CC, 0x113D3}, {0x113E1, 0x113E2},
      {0x116D0, 0x116E3}, {0x11BC0, 0x11BE0}, {0x11BF0, 0x11BF9}, {0x11F5A, 0x11F5A}, {0x13460, 0x143FA},
      {0x16100, 0x16139}, {0x16D40, 0x16D6C}, {0x16D70, 0x16D79}, {0x18CFF, 0x18CFF}, {0x1CCF0, 0x1CCF9},
      {0x1E5D0, 0x1E5FA}, {0x2EBF0, 0x2EE5D}};
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [&](const auto& range) { return c >= range.first && c <= range.second; });
}

void check(UErrorCode error) {
  if (U_FAILURE(error)) throw Error(std::string("[tokenizer] ICU failed: ") + u_errorName(error));
}

// Characters younger than Unicode 9 take no part in normalization: they neither decompose nor move.
icu::FilteredNormalizer2 of_unicode_9(const icu::Normalizer2* (*instance)(UErrorCode&)) {
  UErrorCode error = U_ZERO_ERROR;
  static const icu::UnicodeSet old = [] {
    UErrorCode problem = U_ZERO_ERROR;
    icu::UnicodeSet set(icu::UnicodeString("[:age=9.0:]"), problem);
    check(problem);
    set.freeze();
    return set;
  }();
  const icu::Normalizer2* newest = instance(error);
  check(error);
  return {*newest, old};
}

const icu::Normalizer2& normalizer(NormalForm form) {
  static const icu::FilteredNormalizer2 nfc = of_unicode_9(icu::Normalizer2::getNFCInstance),
                                        nfd = of_unicode_9(icu::Normalizer2::getNFDInstance),
                                        nfkc = of_unicode_9(icu::Normalizer2::getNFKCInstance),
                                        nfkd = of_unicode_9(icu::Normalizer2::getNFKDInstance);
  switch (form) {
    case NormalForm::nfc:
      return nfc;
    case NormalForm::nfd:
      return nfd;
    case NormalForm::nfkc:
      return nfkc;
    case NormalForm::nfkd:
      break;
  }
  return nfkd;
}

}  // namespace

bool is_other(char32_t c) {
  if (c < 0x80) return c < 0x20 || c == 0x7F;
  return (category_mask_of_unicode_8(c) & (U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK)) != 0;
}

bool is_bert_punctuation(char32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  return (category_mask_of_unicode_8(c) & U_GC_P_MASK) != 0;
}

bool is_nonspacing_mark(char32_t c) {
  return c >= 0x300 && (category_mask_of_unicode_8(c) & U_GC_MN_MASK) != 0;
}

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0x2F800 && c <= 0x2FA1F);
}

void append_lower(std::u32string& out, char32_t c) {
  if (c == 0x130) {  // I with a dot above: the only character whose lower case is two, i and the dot
    out += U"i\u0307";
  } else if (c < 0x80) {
    out += c >= 'A' && c <= 'Z' ? c + 0x20 : c;
  } else {
    out += lower_of_unicode_17(c);
  }
}

std::u32string decompose(const std::u32string& text) { return normal_form(text, NormalForm::nfd); }

std::u32string normal_form(const std::u32string& text, NormalForm form) {
  UErrorCode error = U_ZERO_ERROR;
  const auto utf16 = icu::UnicodeString::fromUTF32(reinterpret_cast<const UChar32*>(text.data()),
                                                   static_cast<int32_t>(text.size()));
  const icu::UnicodeString decomposed = normalizer(form).normalize(utf16, error);
  check(error);
  std::u32string out;
  out.reserve(static_cast<size_t>(decomposed.length()));
  for (int32_t i = 0; i < decomposed.length(); i = decomposed.moveIndex32(i, 1))
    out += static_cast<char32_t>(decomposed.char32At(i));
  return out;
}

bool is_mark(char32_t c) {
  if (c < 0x300 || !exists_in_unicode(c, 9)) return false;
  if (c == 0x1CF2 || c == 0x1CF3) return true;  // now Lo
  if (c == 0x111C9) return false;               // was Po
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_M_MASK) != 0;
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  if ((c >= 0x11DE0 && c <= 0x11DE9) || (c >= 0x16FF4 && c <= 0x16FF6)) return true;  // Unicode 17
  // Unicode 15 and 16, for an ICU that is older.
  for (const auto& [first, last] : {std::pair<char32_t, char32_t>{0x10D40, 0x10D49},
                                    {0x116D0, 0x116E3},
                                    {0x11BF0, 0x11BF9},
                                    {0x11F50, 0x11F59},
                                    {0x16130, 0x16139},
                                    {0x16D70, 0x16D79},
                                    {0x1CCF0, 0x1CCF9},
                                    {0x1D2C0, 0x1D2D3},
                                    {0x1E4F0, 0x1E4F9},
                                    {0x1E5F1, 0x1E5FA}})
    if (c >= first && c <= last) return true;
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_N_MASK) != 0;
}

bool is_word(char32_t c) {
  const auto point = static_cast<UChar32>(c);
  if (is_word_since_unicode_15_1(c)) return true;
  if (!exists_in_unicode(c, 16)) return false;
  return u_hasBinaryProperty(point, UCHAR_ALPHABETIC) || u_hasBinaryProperty(point, UCHAR_JOIN_CONTROL) ||
         (U_GET_GC_MASK(point) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}

}  // namespace graft::io
