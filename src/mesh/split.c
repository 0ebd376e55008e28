// Who gets which eighths of every sum.
#include "mesh/mesh.h"

#include <math.h>

struct mesh_split mesh_split_even(uint32_t n_devices)
{
    struct mesh_split split = {.n_devices = n_devices};
    for (uint32_t d = 0; d <= n_devices && d <= MAX_DEVICES; d++)
        split.eighth[d] = (uint8_t)((2 * 8 * d + n_devices) / (2 * n_devices));
    return split;
}

enum status mesh_split_by_shares(const double *shares, size_t n, struct mesh_split *split, bool *rounded,
                                 struct error *error)
{
    double sum = 0, at = 0;
    if (n == 0 || n > MAX_DEVICES)
        return error_set(error, STATUS_INVALID, "a split has %zu shares: give one a device, 1 to %d of them", n,
                         MAX_DEVICES);
    for (size_t d = 0; d < n; d++) {
        if (!isfinite(shares[d]) || shares[d] < 0)
            return error_set(error, STATUS_INVALID, "share %zu of the split must be a number that is not negative",
                             d + 1);
        sum += shares[d];
    }
    if (!(sum > 0) || !isfinite(sum))
        return error_set(error, STATUS_INVALID, "the shares of the split must not all be zero, nor exceed all numbers");
    *split = (struct mesh_split){.n_devices = (uint32_t)n};
    *rounded = false;
    for (size_t d = 0; d < n; d++) {
        at += shares[d];
        double eighths = d + 1 == n ? 8 : at / sum * 8;
        split->eighth[d + 1] = (uint8_t)floor(eighths + 0.5);
        *rounded = *rounded || fabs(eighths - split->eighth[d + 1]) > 1e-9;
    }
    return STATUS_OK;
}
