#include "adapters/k_means.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <random>
#include <vector>

namespace graft::adapters {
namespace {

/// numpy.random.RandomState(seed).choice(population, count, replace=False, p=[1 / population] * population)
std::vector<int64_t> chosen(int64_t population, int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  const auto uniform = [&random] {
    const auto high = random() >> 5, low = random() >> 6;
    return (static_cast<double>(high) * 0x1p26 + static_cast<double>(low)) / 0x1p53;
  };
  std::vector<double> share(static_cast<size_t>(population),
                            static_cast<double>(1.0F / static_cast<float>(population)));
  std::vector<int64_t> found;
  while (static_cast<int64_t>(found.size()) < count) {
    std::vector<double> draws(static_cast<size_t>(count) - found.size());
    std::generate(draws.begin(), draws.end(), uniform);
    for (const auto taken : found) share[static_cast<size_t>(taken)] = 0;
    std::vector<double> sums(share.size());
    double sum = 0;
    for (size_t i = 0; i < share.size(); ++i) sums[i] = sum += share[i];
    for (auto& each : sums) each /= sum;
    const auto known = static_cast<std::ptrdiff_t>(found.size());
    for (const double draw : draws) {
      const auto place = std::upper_bound(sums.begin(), sums.end(), draw) - sums.begin();
      if (std::find(found.begin() + known, found.end(), place) == found.end()) found.push_back(place);
    }
  }
  return found;
}

at::Tensor nearest(const at::Tensor& points, const at::Tensor& centres) {
  const auto lengths = centres.pow(2).sum(1);
  return at::argmin(at::addmm(lengths, points, centres.t(), /*beta=*/1, /*alpha=*/-2), 1);
}

/// The groups' means. A group that has lost all its points takes the one that lies farthest from its centre.
at::Tensor means(const at::Tensor& points, const at::Tensor& labels, const at::Tensor& centres) {
  auto sums = at::zeros_like(centres).index_add(0, labels, points);
  auto counts =
      at::zeros({centres.size(0)}, points.options()).index_add(0, labels, at::ones({labels.size(0)}));
  const auto empty = at::nonzero(counts == 0).flatten();
  const auto distances = (points - centres.index_select(0, labels)).pow(2).sum(1);
  if (empty.numel() > 0 && distances.max().item<float>() > 0) {
    const auto far = std::get<1>(distances.topk(empty.numel()));
    for (int64_t i = 0; i < empty.numel(); ++i) {
      const auto point = far[i].item<int64_t>(), to = empty[i].item<int64_t>(),
                 from = labels[point].item<int64_t>();
      sums[from].sub_(points[point]);
      sums[to].copy_(points[point]);
      counts[from].sub_(1);
      counts[to].fill_(1);
    }
  }
  const auto average = sums / counts.unsqueeze(1).clamp_min(1);
  const auto largest = average[counts.argmax().item<int64_t>()];
  return at::where(counts.unsqueeze(1) > 0, average, largest);
}

}  // namespace

at::Tensor k_means(const at::Tensor& points, int64_t groups, int64_t rounds, uint32_t seed) {
  const at::NoGradGuard no_grad;
  constexpr double tolerance = 1e-4;
  const auto given = points.to(at::kFloat).cpu();
  const auto x = given - given.mean(0);
  const double still = x.var(0, /*unbiased=*/false).mean().item<double>() * tolerance;
  auto centres = x.index_select(0, at::tensor(chosen(x.size(0), groups, seed)));
  at::Tensor before;
  for (int64_t round = 0; round < rounds; ++round) {
    const auto labels = nearest(x, centres);
    if (before.defined() && at::equal(labels, before)) return labels;
    const auto moved = means(x, labels, centres);
    const double shift = (moved - centres).pow(2).sum().item<double>();
    centres = moved;
    if (shift <= still) break;
    before = labels;
  }
  return nearest(x, centres);
}

}  // namespace graft::adapters
