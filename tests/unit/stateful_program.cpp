// Stateful programs: how a body is run, and how all of it is written down.
#include "stateful_program.h"

#include <sstream>

namespace graft::stateful {

bool Program::changes_anything() const {
  return std::any_of(ops.begin(), ops.end(), [](const Op& op) { return op.rule->effect == Effect::changes; });
}

bool Program::draws() const {
  return std::any_of(ops.begin(), ops.end(), [](const Op& op) { return op.rule->random; });
}

bool Program::decides() const {
  return std::any_of(ops.begin(), ops.end(), [](const Op& op) { return op.rule->decides; });
}

Tensor run_op(const Op& op, const Tensors& values, size_t index_value, const Mode& mode) {
  Tensors operands;
  for (const size_t v : op.operands) operands.push_back(values[v]);
  operands.push_back(values[index_value]);
  return op.rule->run(operands, op.numbers, mode);
}

Tensors Program::run(Tensors& given, const Tensors& state, const Mode& mode) const {
  Tensors values(given.begin(), given.begin() + static_cast<int64_t>(arguments.size()));
  values.insert(values.end(), state.begin(), state.end());
  values.push_back(given.back());
  for (const auto& op : ops) {
    values.push_back(run_op(op, values, index_value(), mode));
    if (mode.watch) (*mode.watch)(op, values);
  }
  Tensors made;
  for (const size_t r : results) made.push_back(values[r]);
  for (const auto& rebind : rebinds) given[rebind.argument] = values[rebind.value];
  return made;
}

namespace {

const char* kinds[] = {"a lambda that reaches a module", "a lambda with its module named", "a module",
                       "two blocks of a model, regional", "a training step"};
const char* roles[] = {"parameter", "buffer", "captured tensor"};
const char* layouts[] = {"row-major", "transposed", "every other element",
                         "expanded",  "offset",     "channels-last"};
const char* data_names[] = {"plain", "positive", "zeros", "special", "tiny", "huge"};
const char* optimizers[] = {"SGD", "SGD with momentum", "SGD with nesterov", "AdamW"};
const char* backwards[] = {"", "; autograd::grad", "; backward()", "; autograd::grad twice",
                           "; autograd::grad of each result"};

std::string state_name(const Program& program, size_t state) {
  constexpr char letters[] = {'p', 'b', 'c'};
  return letters[static_cast<size_t>(program.states[state].role)] + std::to_string(state);
}

/// A state by its number over all blocks of a regional program.
std::string state_of_any_block(const Program& program, size_t which) {
  if (program.states.empty()) return "nothing";
  const size_t count = program.states.size(), block = which / count % 2;
  return (program.kind == Kind::regional ? "layers." + std::to_string(block) + "." : "") +
         state_name(program, which % count);
}

std::string text_of(const Program& program, const Source& source) {
  std::string text;
  switch (source.from) {
    case From::numbers:
      text = std::string("numbers(") + layouts[static_cast<size_t>(source.layout)] + ")";
      break;
    case From::argument:
      text = "a" + std::to_string(source.which);
      break;
    case From::window:
      text = "window " + std::to_string(source.which % 4) + " of one storage";
      break;
    case From::state:
      text = state_of_any_block(program, source.which);
      break;
    case From::view_of_state:
      text = state_of_any_block(program, source.which) + ".detach()";
      break;
    case From::made_of_state:
      text = state_of_any_block(program, source.which) + ".clone()";
      break;
    case From::result:
      text = "earlier result " + std::to_string(source.which);
      break;
  }
  if (source.bits == Bits::negated) text = "_neg_view(" + text + ")";
  if (source.bits == Bits::conjugated) text += ".conj()";
  if (source.gradient == Gradient::leaf) text += ".requires_grad_()";
  if (source.gradient == Gradient::inner) text += ".requires_grad_().mul(1)";
  return text;
}

std::string text_of(const Program& program, const Event& event) {
  const auto state = state_of_any_block(program, event.which);
  switch (event.path) {
    case Path::in_place:
      return state + ".copy_(numbers) under no_grad";
    case Path::data_copy:
      return state + ".data().copy_(numbers)";
    case Path::set_data:
      return state + ".set_data(numbers)";
    case Path::slot:
      return "the slot of " + state + " = numbers";
    case Path::optimizer:
      return state + ".grad = numbers; SGD.step()";
    case Path::pointer:
      return "memcpy(" + state + ".data_ptr(), numbers)";
    case Path::write_result:
      return "earlier result " + std::to_string(event.which) + ".copy_(numbers)";
    case Path::train:
    case Path::eval:
      return (event.which % 2 ? "block " + std::to_string(event.which / 2 % 2) + " " : std::string()) +
             (event.path == Path::train ? "train()" : "eval()");
    case Path::freeze:
      return state + ".requires_grad_(false)";
    case Path::thaw:
      return state + ".requires_grad_(true)";
  }
  return "";
}

void write_body(std::ostream& out, const Program& program) {
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const auto& op = program.ops[i];
    out << "  auto v" << program.first_op() + i << " = ";
    for (const char* c = op.rule->text; *c; ++c) {
      if (*c == '$')
        out << name_of(program, op.operands[static_cast<size_t>(*++c - '0')]);
      else if (*c == '#')
        out << op.numbers[static_cast<size_t>(*++c - '0')];
      else
        out << *c;
    }
    out << ";\n";
  }
  for (const auto& rebind : program.rebinds)
    out << "  a" << rebind.argument << " = " << name_of(program, rebind.value) << ";  // a reference\n";
  out << "  return {";
  for (size_t i = 0; i < program.results.size(); ++i)
    out << (i ? ", " : "") << name_of(program, program.results[i]);
  out << "};\n";
}

}  // namespace

std::string name_of(const Program& program, size_t value) {
  if (value < program.arguments.size()) return "a" + std::to_string(value);
  if (value < program.index_value()) return state_name(program, value - program.arguments.size());
  return value == program.index_value() ? "index" : "v" + std::to_string(value);
}

std::string Program::text() const {
  std::ostringstream out;
  out << "  // " << kinds[static_cast<size_t>(kind)] << ", " << (sort == exact ? "exact" : "smooth")
      << (aot_eager ? ", backend aot_eager" : "") << (verify ? "" : ", verify = false");
  if (verify_every) out << ", verify_every = " << verify_every;
  if (kind == Kind::step) out << ", " << optimizers[static_cast<size_t>(optimizer)];
  if (clip > 0) out << ", max_grad_norm = " << clip;
  if (threads) out << ", then " << threads << " threads at once";
  out << (retain_graph ? ", retain_graph" : "") << "\n";
  for (size_t i = 0; i < arguments.size(); ++i)
    out << "  a" << i << ": " << arguments[i].dtype << at::IntArrayRef(arguments[i].sizes) << "\n";
  for (size_t i = 0; i < states.size(); ++i)
    out << "  " << state_name(*this, i) << ": " << roles[static_cast<size_t>(states[i].role)] << " "
        << states[i].type.dtype << at::IntArrayRef(states[i].type.sizes) << " "
        << layouts[static_cast<size_t>(states[i].layout)] << (states[i].from_blob ? " from_blob" : "")
        << (states[i].requires_grad ? " requires_grad" : "") << "\n";
  write_body(out, *this);
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto& call = calls[i];
    for (const auto& event : call.before) out << "  " << text_of(*this, event) << ";\n";
    out << "  call " << i << ": f(";
    for (size_t a = 0; a < call.sources.size(); ++a)
      out << (a ? ", " : "") << text_of(*this, call.sources[a]);
    out << ")" << backwards[static_cast<size_t>(call.backward)]
        << (call.left_out ? " but by result " + std::to_string(call.left_out - 1) : "") << "  // "
        << data_names[static_cast<size_t>(call.data)] << " data"
        << (decides() ? ", host " + std::to_string(call.host) : "") << (call.grad_mode ? "" : ", no_grad")
        << "\n";
  }
  return out.str();
}

}  // namespace graft::stateful
