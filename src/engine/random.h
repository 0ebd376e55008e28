// Counter-based randomness: a draw is a function of its key alone, so no draw depends on what else runs.
#ifndef MOTE_ENGINE_RANDOM_H
#define MOTE_ENGINE_RANDOM_H

#include <stdint.h>

// A number in [0, 1) of 53 bits from (seed, position). Philox4x32-10: Salmon et al., Parallel Random Numbers: As Easy
// as 1, 2, 3, 2011.
double random_uniform(uint64_t seed, uint64_t position);

// The four words of one block, for tests against the published vectors.
void random_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#endif
