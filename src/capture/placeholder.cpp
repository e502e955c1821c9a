#include "capture/placeholder.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <functional>

namespace graft {
namespace {

// Part of what torch throws. Short: each placeholder has it.
constexpr const char* no_elements = "a placeholder";

/// Also for those who only read, where this torch can say so.
template <class Storage>
void refuse_access(Storage& storage) {
  if constexpr (requires { storage.release_data_and_set_meta_custom_data_ptr_error_msg_(std::string()); })
    storage.release_data_and_set_meta_custom_data_ptr_error_msg_(no_elements);
  else
    storage.set_throw_on_mutable_data_ptr();
}

template <class Storage>
void allow_access(Storage& storage) {
  if constexpr (requires { storage.clear_data_ptr_access_error_msg_(); })
    storage.clear_data_ptr_access_error_msg_();
}

c10::Storage storage_without_elements(size_t bytes, at::Device device) {
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                             at::DataPtr(nullptr, device),
                                                             /*allocator=*/nullptr, /*resizable=*/false));
  refuse_access(*storage.unsafeGetStorageImpl());
  return storage;
}

/// Tensors that were made of the placeholder without the dispatcher lie in its storage: that shows the same
/// memory.
void lend_memory(c10::StorageImpl& to, const c10::Storage& from) {
  auto* owner = new c10::Storage(from);  // NOLINT(cppcoreguidelines-owning-memory): the pointer's deleter's
  const auto release = [](void* context) { delete static_cast<c10::Storage*>(context); };
  allow_access(to);
  to.set_data_ptr_noswap(at::DataPtr(const_cast<void*>(from.data()), owner, release, from.device()));
}

using torch::autograd::ViewInfo;
/// What stands for a tensor that was made.
using StandIn = std::function<at::Tensor(const at::Tensor&)>;

std::optional<ViewInfo> copy_of(const ViewInfo& info, const StandIn& stand_in) {
  return ViewInfo(stand_in(info.base_), info.has_view_fn() ? info.view_fn().clone_and_set() : nullptr,
                  info.rev_view_fn_);
}

void copy_history(const at::Tensor& to, const at::Tensor& from, const StandIn& stand_in) {
  using namespace torch::autograd;
  auto* impl = to.unsafeGetTensorImpl();
  const auto* meta = impl::get_autograd_meta(from);
  if (!meta) return impl->set_autograd_meta(nullptr);
  if (const auto* view = impl::get_view_autograd_meta(from)) {
    auto copy = std::make_unique<DifferentiableViewMeta>(
        impl, view->has_bw_view() ? copy_of(view->get_backward_view(), stand_in) : std::nullopt,
        view->has_fw_view() && !view->shared_view_info() ? copy_of(view->get_forward_view(), stand_in)
                                                         : std::nullopt,
        view->shared_view_info(), view->has_bw_view() ? view->get_creation_meta() : CreationMeta::DEFAULT);
    if (view->has_bw_view()) copy->set_attr_version(view->get_attr_version());
    copy->grad_fn_ = view->grad_fn_;
    copy->output_nr_ = view->output_nr_;
    copy->requires_grad_ = view->requires_grad_;
    return impl->set_autograd_meta(std::move(copy));
  }
  impl->set_autograd_meta(
      std::make_unique<AutogradMeta>(impl, meta->requires_grad_, Edge(meta->grad_fn_, meta->output_nr_)));
}

/// That the code has put on a tensor.
std::shared_ptr<torch::autograd::hooks_list> hooks_of(const at::Tensor& tensor) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  return meta ? meta->cpp_hooks_list_ : nullptr;
}

void fill(const at::Tensor& placeholder, const at::Tensor& made, const StandIn& stand_in) {
  auto* impl = placeholder.unsafeGetTensorImpl();
  const bool wants_gradient = placeholder.requires_grad() && !made.requires_grad();
  const auto& storage = placeholder.storage();
  if (storage.unsafeGetStorageImpl() != made.storage().unsafeGetStorageImpl() && storage.use_count() > 1)
    lend_memory(*storage.unsafeGetStorageImpl(), made.storage());
  const auto hooks = hooks_of(placeholder);
  impl->set_autograd_meta(nullptr);
  impl->shallow_copy_from(made.getIntrusivePtr());
  if (!placeholder.is_inference() && !made.is_inference())
    impl->set_version_counter(made.unsafeGetTensorImpl()->version_counter());
  copy_history(placeholder, made, stand_in);
  // The code has said so, of a leaf that it made.
  if (wants_gradient && made.is_floating_point()) placeholder.set_requires_grad(true);
  if (hooks && placeholder.requires_grad())
    for (const auto& hook : *hooks)
      if (hook)
        placeholder.register_hook([hook](const at::Tensor& gradient) { return at::Tensor(hook(gradient)); });
}

}  // namespace

at::Tensor make_placeholder(const Trace::Result& result, const at::Tensor& of) {
  const auto type = c10::scalarTypeToTypeMeta(result.dtype);
  // A view is an inference tensor, or not, as what it is a view of is, whatever the mode.
  auto tensor = of.defined() ? at::detail::make_tensor_base<c10::TensorImpl>(
                                   c10::TensorImpl::VIEW, c10::Storage(of.storage()), of.key_set(), type)
                             : at::detail::make_tensor_base<c10::TensorImpl>(
                                   storage_without_elements(result.bytes, result.device),
                                   c10::computeDispatchKey(result.dtype, at::kStrided, result.device), type);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
      result.sizes, result.strides, result.offset + (of.defined() ? of.storage_offset() : 0));
  return at::Tensor(std::move(tensor));
}

void lend_elements(c10::StorageImpl& to, const at::Tensor& made) {
  made.storage().mutable_data();  // memory that is shared until it is written becomes the tensor's own
  lend_memory(to, made.storage());
}

bool is_about_a_placeholder(const std::string& message) { return message.starts_with(no_elements); }

void fill_placeholders(const std::vector<at::Tensor>& placeholders, const std::vector<at::Tensor>& made) {
  const auto stand_in = [&](const at::Tensor& tensor) {
    const auto at = std::ranges::find_if(made, [&](const at::Tensor& each) { return each.is_same(tensor); });
    return at == made.end() ? tensor : placeholders[static_cast<size_t>(at - made.begin())];
  };
  for (size_t i = 0; i < made.size(); ++i) fill(placeholders[i], made[i], stand_in);
}

}  // namespace graft
