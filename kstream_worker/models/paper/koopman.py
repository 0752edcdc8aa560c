"""The sparse online Koopman operator as published in paper 003 (eqs. 18-28, Algorithm 1), growing freely.

With y the state after x and one kernel on both sides, the algorithm is that of paper 000: the operator U with
U phi(x) = E[phi(y) | x], learned by `PaperCME` with the corrections listed there. The Koopman operator is its adjoint.
Eigenvalues and eigenfunctions are those of paper 000, section 5.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from kstream_worker.models.baselines.kernels import as_points, gaussian_matrix
from kstream_worker.models.paper.cme import PaperCME

Floats = NDArray[np.float64]
Complex = NDArray[np.complex128]


class PaperKoopman(PaperCME):
    """Koopman operator of a Markov chain or a dynamical system by sparse stochastic operator gradient descent.

    The dictionary has no bound, and nothing is forgotten: `models.koopman.Koopman` is the bounded form. What is
    evaluated here beyond `PaperCME` is not bit-stable (LAPACK).

    Args:
        sigma: width of the Gaussian kernel exp(-|x - x'|^2 / (2 sigma^2)).
        eta: step size, constant.
        lam: regularisation lambda (eq. 17).
        epsilon: budget of the sparsification (eq. 26).

    Raises:
        ValueError: a setting is out of range.
    """

    def __init__(self, sigma: float, *, eta: float = 0.2, lam: float = 1e-3, epsilon: float) -> None:
        super().__init__(sigma, sigma, eta=eta, lam=lam, epsilon=epsilon)
        self.sigma = sigma

    def eigenvalues(self, count: int, *, averaged: bool = False) -> Complex:
        """The `count` eigenvalues of largest modulus of W' G_YX, by falling modulus, of a pair the one im > 0 first."""
        return self._modes(averaged)[0][:count]

    def eigenfunctions(self, points: ArrayLike, count: int, *, averaged: bool = False) -> Complex:
        """Their eigenfunctions sum_i v_i k(x_i, .) at points, complex128[count, n], each up to a factor."""
        k = gaussian_matrix(as_points("points", points), self.dictionary[0], self.sigma)
        values: Complex = (k @ self._modes(averaged)[1][:, :count]).T
        return values

    def forecast(self, points: ArrayLike, steps: int, *, averaged: bool = False) -> Floats:
        """The mean state `steps` >= 1 after each point, float64[n, dims].

        It is sum_l c_l y_l with U^h phi(x) = sum_l c_l phi(y_l); the papers print no formula for it.
        """
        x, y = self.dictionary
        c = self.weights(points, averaged=averaged)
        again = self.coefficients(averaged=averaged) @ gaussian_matrix(x, y, self.sigma)
        for _ in range(steps - 1):
            c = again @ c
        mean: Floats = c.T @ y
        return mean

    def _modes(self, averaged: bool) -> tuple[Complex, Complex]:
        x, y = self.dictionary
        matrix = self.coefficients(averaged=averaged).T @ gaussian_matrix(y, x, self.sigma)
        values, vectors = linalg.eig(matrix)
        order = np.lexsort((-values.imag, -np.round(np.abs(values), 12)))
        return values[order], vectors[:, order]
