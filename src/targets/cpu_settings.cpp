#include "targets/cpu_settings.h"

#include <ATen/Context.h>

namespace graft::cpu {
namespace {

/// Where the CPU has no instructions for bfloat16, a product in it makes torch switch oneDNN off for the rest
/// of the process. Programs compute in float32 there, and continue to use it.
class OneDnnSetting : public KeptSettings {
 public:
  OneDnnSetting() : on_(at::globalContext().userEnabledMkldnn()) {}
  ~OneDnnSetting() override {
    if (on_) at::globalContext().setUserEnabledMkldnn(true);
  }
  OneDnnSetting(const OneDnnSetting&) = delete;
  OneDnnSetting& operator=(const OneDnnSetting&) = delete;

 private:
  bool on_;
};

}  // namespace

std::unique_ptr<KeptSettings> keep_settings() { return std::make_unique<OneDnnSetting>(); }

}  // namespace graft::cpu
