// Rules for what is drawn among: tokens that are left out get minus infinity. Each leaves at least `keep`
// tokens, the likeliest.
#pragma once
#include "generation/scores.h"

namespace graft::generation {

Scores::Rule divide(double temperature);
/// The likeliest tokens whose shares of the entropy add up to at most `share` of it (of the first hundred).
Scores::Rule keep_top_h(double share);
Scores::Rule keep_top_k(int64_t k);
/// The likeliest tokens that together have the probability p.
Scores::Rule keep_top_p(double p, int64_t keep);
/// Those with at least p times the probability of the likeliest.
Scores::Rule keep_min_p(double p, int64_t keep);
/// Those whose surprise is nearest to the expected one and that together have the probability p.
Scores::Rule keep_typical(double p, int64_t keep);
/// Those with at least this probability.
Scores::Rule cut_epsilon(double epsilon, int64_t keep);
/// The same, with a lower bound where the entropy is large.
Scores::Rule cut_eta(double epsilon, int64_t keep);

}  // namespace graft::generation
