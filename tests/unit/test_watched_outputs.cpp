// What a compiled function gives back lies in memory as eager code's results do: who shares it, and where
// each begins.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "watched_state.h"

namespace graft {
namespace {

using namespace watched_state;

TEST(WatchedOutputs, TensorsMadePastTheDispatcherShareMemory) {
  const auto f = [](Tensor x) {
    const auto w = x * 2;
    return Tensors{w, w.data(), x.data()};
  };
  const auto fast = compile(f);
  for (int i = 0; i < 6; ++i) {
    const auto x = with_gradient(i);
    const auto got = fast(x);
    EXPECT_TRUE(got[0].is_alias_of(got[1]));
    EXPECT_TRUE(got[2].is_alias_of(x));
    EXPECT_FALSE(got[1].requires_grad());
    EXPECT_FALSE(got[2].requires_grad());
  }
  const auto bits = compile([](Tensor x) {
    const auto w = x * 2;
    return Tensors{w, w.view(at::kInt)};
  });
  for (int i = 0; i < 6; ++i) {
    const auto got = bits(with_gradient(i));
    EXPECT_TRUE(got[0].is_alias_of(got[1])) << i;
  }
}

TEST(WatchedOutputs, TensorsMadePastTheDispatcherOfConjugatedOnes) {
  const auto f = [](Tensor x) {
    const auto a = x * 2, b = a.conj();
    return Tensors{b.data(), b.conj().data(), x.data(), x.conj().data()};
  };
  const auto fast = compile(f, {.verify = false});
  for (int i = 0; i < 6; ++i) {
    auto x = at::complex(numbers(i), numbers(i + 1));
    if (i > 2) x = x.conj();
    const auto got = fast(x), want = f(x);
    for (size_t k = 0; k < got.size(); ++k) {
      EXPECT_TRUE(at::equal(got[k], want[k])) << i << " " << k;
      EXPECT_EQ(got[k].is_conj(), want[k].is_conj()) << i << " " << k;
    }
  }
}

TEST(WatchedOutputs, TensorsMadePastTheDispatcherOfMemoryThatTwoTensorsHave) {
  const auto held = numbers(1);
  const auto f = [held](Tensor) { return held.data(); };
  const auto g = [held](Tensor x) { return Tensors{held + 1, x + 1, held.data()}; };
  const auto fast = compile(f);
  const auto both = compile(g);
  for (int i = 0; i < 6; ++i) {
    const auto x = i < 3 ? held.detach() : numbers(i + 5);
    EXPECT_TRUE(at::equal(fast(x), held)) << i;
    EXPECT_TRUE(at::equal(both(x)[2], held)) << i;
  }
}

TEST(WatchedOutputs, PiecesOfAHiddenTensorShareItsMemory) {
  const auto f = [](Tensor x) {
    const auto w = x * 2;
    return Tensors{w.slice(0, 0, 2), w.slice(0, 4, 6), w.slice(0, 2, 3)};
  };
  const auto fast = compile(f, {.fullgraph = true});
  for (int i = 0; i < 6; ++i) {
    const auto x = numbers(i);
    const auto got = fast(x), want = f(x);
    for (size_t k = 0; k < got.size(); ++k) {
      EXPECT_TRUE(got[k].is_alias_of(got[0])) << i;
      EXPECT_EQ(got[k].storage_offset(), want[k].storage_offset());
      EXPECT_TRUE(at::equal(got[k], want[k]));
    }
    EXPECT_TRUE(at::equal(got[0].as_strided({6}, {1}, 0), x * 2)) << i;  // what lies between is there too
  }
  // With gradients they lie apart, and are one graph all the same.
  for (int i = 0; i < 6; ++i) {
    const auto x = with_gradient(i);
    const auto got = fast(x);
    EXPECT_TRUE(at::equal(got[1], f(x)[1]));
    (got[0].sum() + got[1].sum() * 3).backward();
    EXPECT_EQ(x.grad().sum().item<double>(), 4 + 12) << i;
  }
}

TEST(WatchedOutputs, PlacesOfTheLargestOfRepeatedNumbers) {
  const auto f = [](Tensor x) {
    const auto a = x.round(), b = a * 2;
    return Tensors{a, a.argmax(0, true), b, b.argmax(0, true)};
  };
  for (const auto dtype : {at::kHalf, at::kBFloat16, at::kFloat}) {
    const auto fast = compile(f);
    for (const int64_t rows : {2, 5, 50}) {
      const auto x = at::arange(40).to(dtype).expand({rows, 40});
      const auto got = fast(x), want = f(x);
      for (size_t k = 0; k < got.size(); ++k) EXPECT_TRUE(at::equal(got[k], want[k])) << dtype << rows;
    }
  }
}

TEST(WatchedOutputs, PlacesInTheMemoryOfWhatACallMakes) {
  const auto f = [](Tensor x) {
    const auto others = (x * 3).cumsum(0);  // lies in the arena, too
    x.select(0, 0).zero_();
    x.diagonal().fill_(1);
    const auto seen = x.as_strided({2}, {1}, 0);
    return Tensors{seen * 2, others};
  };
  const auto fast = compile(f);
  for (int i = 0; i < 4; ++i) {
    const auto x = numbers(i).slice(0, 0, 2).view({1, 2}).clone(), mine = x.clone();
    const auto got = fast(mine), want = f(x);
    for (size_t k = 0; k < got.size(); ++k) EXPECT_TRUE(at::equal(got[k], want[k])) << i;
  }
}

TEST(WatchedOutputs, AWriteThroughAnExpandedConjugatedTensor) {
  const auto f = [](Tensor x) {
    const auto turned = x.mH();
    turned.expand_as(turned).neg_();
    return x * 2;
  };
  const auto fast = compile(f);
  for (int i = 0; i < 4; ++i) {
    const auto x = at::complex(numbers(i), numbers(i + 1)).view({2, 3}), mine = x.clone();
    EXPECT_TRUE(at::equal(fast(mine), f(x))) << i;
    EXPECT_TRUE(at::equal(mine, x)) << i;
  }
}

TEST(WatchedOutputs, PlacesInTheMemoryOfAConjugatedTensor) {
  const auto f = [](Tensor x) {
    const auto turned = x.mH();
    turned.as_strided({2}, {1}, 0).add_(1);
    return turned * 2;
  };
  const auto fast = compile(f, {.verify = false});
  for (int i = 0; i < 4; ++i) {
    const auto x = at::complex(numbers(i), numbers(i + 1)).view({2, 3}), mine = x.clone();
    EXPECT_TRUE(at::equal(fast(mine), f(x))) << i;
    EXPECT_TRUE(at::equal(mine, x)) << i;
  }
}

TEST(WatchedOutputs, ConjugatedWrittenToAndConjugatedAgain) {
  const auto f = [](Tensor x) {
    const auto turned = (x * 2).mH();
    turned.add_(x.mH());
    return turned.mH();
  };
  const auto fast = compile(f);
  for (int i = 0; i < 4; ++i) {
    const auto x = at::complex(numbers(i), numbers(i + 1)).view({2, 3});
    const auto got = fast(x);
    EXPECT_TRUE(at::equal(got, f(x))) << i;
    EXPECT_FALSE(got.is_conj()) << i;
  }
}

TEST(WatchedOutputs, TheRealPartOfAConjugatedArgumentAfterAWrite) {
  const auto f = [](Tensor x) {
    const auto before = at::real(x) * 2;
    x.select(0, 1).zero_();
    return before + at::real(x);
  };
  const auto fast = compile(f);
  for (int i = 0; i < 6; ++i) {
    const auto x = at::complex(numbers(i), numbers(i + 1)), mine = x.clone();
    EXPECT_TRUE(at::equal(fast(mine.conj()), f(x.conj()))) << i;
    EXPECT_TRUE(at::equal(mine, x)) << i;
  }
}

TEST(WatchedOutputs, PartsOfAnOutputWithGradientsShareItsMemory) {
  const auto fast = compile([](Tensor x) {
    const auto w = x * 2;
    return Tensors{w, w.slice(0, 0, 2), w.slice(0, 4, 6)};
  });
  for (int i = 0; i < 6; ++i) {
    const auto got = fast(with_gradient(i));
    EXPECT_TRUE(got[0].is_alias_of(got[1]));
    EXPECT_TRUE(got[1].is_alias_of(got[2]));
  }
}

TEST(WatchedOutputs, OutputsBeginWhereEagersDo) {
  // ATen's diagonal_scatter begins where its argument begins, which here is the parameter in place.
  const auto memory = at::zeros({10});
  const auto p = memory.as_strided({2, 2}, {2, 1}, 3);
  p.copy_(numbers(1).slice(0, 0, 4).view({2, 2}));
  const auto turned = compile([p](Tensor) {
    auto v = p * 2;
    const auto d = v.diagonal();
    d.copy_(d.flip({0}));
    p.mul_(2);
    return v;
  });
  // And here a value in the arena.
  const auto pieces = compile([](Tensor x) {
    auto v = x.view({2, 3}).gt(0).index_select(1, at::arange(2));
    const auto d = v.diagonal();
    d.copy_(d.roll(1, 0));
    return Tensors{d, d.squeeze()};
  });
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(turned(numbers(i)).storage_offset(), 0) << i;
    for (const auto& piece : pieces(numbers(i))) EXPECT_EQ(piece.storage_offset(), 0) << i;
  }
}

TEST(WatchedOutputs, EqualValuesOfWhichOneIsSeenInPieces) {
  const auto fast = compile([](Tensor x) {
    const auto a = x.view({2, 3}).sum(1, true), b = x.view({2, 3}).sum(1, true);
    return Tensors{a, b.t(), b.view({2})};
  });
  for (int i = 0; i < 6; ++i) {
    const auto got = fast(numbers(i));
    EXPECT_FALSE(got[0].is_alias_of(got[1]));
    EXPECT_TRUE(got[1].is_alias_of(got[2]));
  }
}

TEST(WatchedOutputs, AProductOfWhatIsConjugatedAndWrittenHasTheBit) {
  const auto f = [](Tensor x) {
    x.select(0, 0).zero_();
    return Tensors{x.matmul(x), at::vdot(x, x), x.unsqueeze(0).mm(x.unsqueeze(1))};
  };
  const auto fast = compile(f);
  for (int i = 0; i < 6; ++i) {
    const auto x = at::complex(numbers(i), numbers(i + 9)), y = x.clone();
    const bool conj = i != 4;
    const auto got = fast(conj ? x.conj() : x), want = f(conj ? y.conj() : y);
    for (size_t k = 0; k < want.size(); ++k) {
      EXPECT_EQ(got[k].is_conj(), want[k].is_conj()) << i << " " << k;
      EXPECT_TRUE(at::allclose(got[k], want[k])) << i << " " << k;
    }
  }
}

}  // namespace
}  // namespace graft
