#include "support/user_code.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <sstream>
#include <string_view>

#include "support/symbols.h"

namespace graft {
namespace {

/// What the dynamic linker knows of an address.
struct Place {
  std::string file;     // of the program or library
  uint64_t offset = 0;  // in it
  std::string linkage_name;
};

Place place_of(const void* address) {
  Dl_info info{};
  link_map* map = nullptr;
  if (!dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP)) return {};
  Place place;
  const bool is_program = !map || !map->l_name || !*map->l_name;
  std::error_code ignored;
  place.file = is_program ? std::filesystem::read_symlink("/proc/self/exe", ignored).string() : map->l_name;
  if (place.file.empty() && info.dli_fname) place.file = info.dli_fname;
  place.offset = reinterpret_cast<uint64_t>(address) - (map ? map->l_addr : 0);
  if (info.dli_sname) place.linkage_name = info.dli_sname;
  return place;
}

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> beginnings) {
  for (const auto beginning : beginnings)
    if (text.starts_with(beginning)) return true;
  return false;
}

std::string base_name(const std::string& file) { return std::filesystem::path(file).filename().string(); }

bool is_torch_library(const std::string& file) {
  return starts_with_any(base_name(file), {"libtorch", "libc10"});
}

bool is_other_library(const std::string& file) {
  return starts_with_any(
      base_name(file), {"libgraft.", "libstdc++", "libc++", "libc.", "libm.", "libgomp", "libomp", "libiomp",
                        "libpthread", "ld-linux", "libgcc_s", "libcu"});
}

/// The name without what says that it is a name: "_ZNK2at6Tensor4itemEv" -> "2at6Tensor4itemEv".
std::string_view first_part(std::string_view name) {
  if (!name.starts_with("_Z")) return {};
  name.remove_prefix(2);
  while (!name.empty() && std::strchr("ZNKVRO", name[0])) name.remove_prefix(1);
  return name;
}

/// Whether a function is torch's, the standard library's or a template of graft's own headers, wherever it
/// was compiled.
bool is_of_a_library(std::string_view linkage_name) {
  const auto name = first_part(linkage_name);
  if (starts_with_any(name, {"St", "Sa", "Ss", "9__gnu_cxx", "2at", "3c10", "5torch", "6caffe2"}))
    return true;
  return starts_with_any(
      name, {"5graft8Compiled", "5graft17CompiledOverloads", "5graft14CompiledModule", "5graft12CompiledStep",
             "5graft6detail", "5graft7compile", "5graft12compile_step", "5graft15compile_regions"});
}

/// What was put into the user's functions from headers; small debug information has no linkage names for
/// that.
bool is_in_header_of_a_library(std::string_view file) {
  for (const auto* folder :
       {"/include/ATen/", "/include/c10/", "/include/torch/", "/include/c++/", "/include/graft/"})
    if (file.find(folder) != std::string_view::npos) return true;
  return false;
}

bool is_in_graft(const Place& place) {
  const auto symbols = symbols_at(place.file, place.offset);
  return first_part(symbols.empty() ? place.linkage_name : symbols.back().linkage_name).starts_with("5graft");
}

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && text ? text.get() : name;
}

/// The user's functions at one address, innermost first.
void add_user_functions(const Place& place, std::vector<std::string>& found) {
  auto symbols = symbols_at(place.file, place.offset);
  if (symbols.empty()) symbols.push_back({place.linkage_name, "", 0});
  for (const auto& symbol : symbols) {
    if (is_of_a_library(symbol.linkage_name) || is_in_header_of_a_library(symbol.file)) continue;
    std::ostringstream text;
    if (symbol.line > 0)
      text << symbol.file << ":" << symbol.line;
    else
      text << base_name(place.file) << "+0x" << std::hex << place.offset;
    if (!symbol.linkage_name.empty()) text << ", in " << demangled(symbol.linkage_name);
    found.push_back(text.str());
  }
}

}  // namespace

std::vector<std::string> user_code_on_stack() {
  std::array<void*, 256> addresses{};
  const auto count = static_cast<size_t>(backtrace(addresses.data(), static_cast<int>(addresses.size())));
  std::vector<Place> places;
  places.reserve(count);
  // What calls stands before the address that it returns to.
  for (size_t i = 0; i < count; ++i) places.push_back(place_of(static_cast<const char*>(addresses[i]) - 1));
  // graft itself, also where it is a part of the program.
  const auto own = place_of(reinterpret_cast<const void*>(&user_code_on_stack));
  const auto is_own = [&](const Place& place) {
    return place.file == own.file && (is_other_library(own.file) || is_in_graft(place));
  };
  // Under a sanitizer its own backtrace() stands above all.
  auto first = std::ranges::find_if(places, is_own);
  if (first == places.end()) first = places.begin();
  first = std::find_if_not(first, places.end(), is_own);
  constexpr size_t enough = 16;
  std::vector<std::string> found;
  for (const auto& place : std::span(first, places.end())) {
    if (found.size() >= enough) break;
    if (place.file.empty() || is_torch_library(place.file) || is_other_library(place.file)) continue;
    if (is_of_a_library(place.linkage_name)) continue;
    add_user_functions(place, found);
  }
  return found;
}

}  // namespace graft
