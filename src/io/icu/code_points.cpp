#include "io/icu/code_points.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>
#include <unicode/unistr.h>

#include "graft/error.h"
#include "io/bert_text.h"

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

void check(UErrorCode error) {
  if (U_FAILURE(error)) throw Error(std::string("[tokenizer] ICU failed: ") + u_errorName(error));
}

// Characters younger than Unicode 9 take no part in normalization: they neither decompose nor move.
const icu::Normalizer2& nfd_of_unicode_9() {
  static const icu::FilteredNormalizer2 filtered = [] {
    UErrorCode error = U_ZERO_ERROR;
    static icu::UnicodeSet old(icu::UnicodeString("[:age=9.0:]"), error);
    check(error);
    old.freeze();
    const icu::Normalizer2* nfd = icu::Normalizer2::getNFDInstance(error);
    check(error);
    return icu::FilteredNormalizer2(*nfd, old);
  }();
  return filtered;
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

std::u32string decompose(const std::u32string& text) {
  UErrorCode error = U_ZERO_ERROR;
  const auto utf16 = icu::UnicodeString::fromUTF32(reinterpret_cast<const UChar32*>(text.data()),
                                                   static_cast<int32_t>(text.size()));
  const icu::UnicodeString decomposed = nfd_of_unicode_9().normalize(utf16, error);
  check(error);
  std::u32string out;
  out.reserve(static_cast<size_t>(decomposed.length()));
  for (int32_t i = 0; i < decomposed.length(); i = decomposed.moveIndex32(i, 1))
    out += static_cast<char32_t>(decomposed.char32At(i));
  return out;
}

// An ICU older than Unicode 16 (76) does not know that version's letters and takes them for non-word
// characters. Only added tokens with single_word, right beside such a letter, can tell.
bool is_word(char32_t c) {
  const auto point = static_cast<UChar32>(c);
  if (!exists_in_unicode(c, 16)) return false;
  return u_hasBinaryProperty(point, UCHAR_ALPHABETIC) || u_hasBinaryProperty(point, UCHAR_JOIN_CONTROL) ||
         (U_GET_GC_MASK(point) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}

}  // namespace graft::io
