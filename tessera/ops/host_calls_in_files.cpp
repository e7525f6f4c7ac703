// Which of PyTorch's operators a graph from a file may call. A file may come from anybody, and
// PyTorch's kernels trust their callers: some read files, some take addresses, sizes or indices as
// they come. So there is a list of those that do none of it: pure functions of their tensors that
// compare shapes and types themselves, read no element as an index and take no sizes. What a
// program captured in this process calls is not limited.
#include <algorithm>
#include <array>
#include <string>

#include "tessera/base/error.h"
#include "tessera/ops/host_call.h"
#include "tessera/ops/registry.h"

namespace tessera {
namespace {

// Element for element, which PyTorch does for all of them by one mechanism; also in place.
constexpr std::array element_functions = {
    "_standard_gamma",
    "angle",
    "binomial",
    "copysign.Scalar",
    "copysign.Tensor",
    "deg2rad",
    "digamma",
    "erfinv",
    "exp2",
    "float_power.Scalar",
    "float_power.Tensor_Scalar",
    "float_power.Tensor_Tensor",
    "frac",
    "gcd",
    "heaviside",
    "hypot",
    "i0",
    "igamma",
    "igammac",
    "lcm",
    "ldexp.Tensor",
    "lgamma",
    "logaddexp",
    "logaddexp2",
    "logit",
    "nan_to_num",
    "nextafter",
    "poisson",
    "polygamma",
    "rad2deg",
    "signbit",
    "sinc",
    "special_airy_ai",
    "special_bessel_j0",
    "special_bessel_j1",
    "special_bessel_y0",
    "special_bessel_y1",
    "special_digamma",
    "special_entr",
    "special_erf",
    "special_erfc",
    "special_erfcx",
    "special_erfinv",
    "special_exp2",
    "special_expit",
    "special_expm1",
    "special_gammainc",
    "special_gammaincc",
    "special_gammaln",
    "special_i0",
    "special_i0e",
    "special_i1",
    "special_i1e",
    "special_log1p",
    "special_log_ndtr",
    "special_logit",
    "special_modified_bessel_i0",
    "special_modified_bessel_i1",
    "special_modified_bessel_k0",
    "special_modified_bessel_k1",
    "special_ndtr",
    "special_ndtri",
    "special_psi",
    "special_scaled_modified_bessel_k0",
    "special_scaled_modified_bessel_k1",
    "special_sinc",
    "special_spherical_bessel_j0",
    "special_xlog1py",
    "special_xlog1py.other_scalar",
    "special_xlog1py.self_scalar",
    "special_zeta",
    "special_zeta.other_scalar",
    "special_zeta.self_scalar",
    "xlogy.Scalar_Other",
    "xlogy.Scalar_Self",
    "xlogy.Tensor",
};

// Linear algebra, and images read at places that are brought inside first. Not what takes pivots of
// a factorisation: LAPACK uses them as indices.
constexpr std::array tensor_functions = {
    "_linalg_det",
    "_linalg_eigh",
    "_linalg_slogdet",
    "_linalg_solve_ex",
    "_linalg_svd",
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "geqrf",
    "grid_sampler_2d",
    "grid_sampler_3d",
    "linalg_cholesky_ex",
    "linalg_householder_product",
    "linalg_inv_ex",
    "linalg_lu",
    "linalg_lu_factor_ex",
    "linalg_matrix_exp",
    "linalg_qr",
    "linalg_solve_triangular",
    "linalg_vector_norm",
    "ormqr",
    "triangular_solve",
};

template <size_t count>
bool contains(const std::array<const char*, count>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// "igamma_" is "igamma" in place, "xlogy_.Tensor" is "xlogy.Tensor".
std::string without_in_place(std::string name) {
  const size_t end = std::min(name.find('.'), name.size());
  if (end > 0 && name[end - 1] == '_') name.erase(end - 1, 1);
  return name;
}

}  // namespace

bool may_be_in_file(std::string_view overload) {
  constexpr std::string_view library = "aten::";
  if (!overload.starts_with(library)) return false;
  const std::string name(overload.substr(library.size()));
  return contains(tensor_functions, name) || contains(element_functions, name) ||
         contains(element_functions, without_in_place(name));
}

void check_host_calls_of_file(const Graph& graph) {
  for (const auto& [overload, nodes] : host_calls(graph)) {
    check(may_be_in_file(overload), ErrorKind::value,
          "the graph calls PyTorch's {}, which a graph from a file may not: it is not known to be "
          "safe whatever its arguments are; run the program that the graph was made of instead",
          overload);
  }
}

}  // namespace tessera
