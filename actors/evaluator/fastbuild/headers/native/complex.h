// The replacement of thrust/complex.h for device code that names nothing complex: c10::complex must
// only be declared.  It has the members and functions that c10's headers mention.
#pragma once
namespace thrust {
template <typename T>
struct complex {
  T re, im;
  __host__ __device__ complex(T real = T(), T imag = T()) : re(real), im(imag) {}
  template <typename U>
  __host__ __device__ complex(const complex<U>& z) : re(T(z.real())), im(T(z.imag())) {}
  __host__ __device__ T real() const { return re; }
  __host__ __device__ T imag() const { return im; }
};
template <typename T> __host__ __device__ T abs(const complex<T>&);
template <typename T> __host__ __device__ T arg(const complex<T>&);
template <typename T> __host__ __device__ complex<T> polar(const T&, const T& = T());
template <typename T> __host__ __device__ complex<T> conj(const complex<T>&);
template <typename T> __host__ __device__ complex<T> proj(const complex<T>&);
template <typename T> __host__ __device__ complex<T> exp(const complex<T>&);
template <typename T> __host__ __device__ complex<T> log(const complex<T>&);
template <typename T> __host__ __device__ complex<T> log10(const complex<T>&);
template <typename T> __host__ __device__ complex<T> sqrt(const complex<T>&);
template <typename T> __host__ __device__ complex<T> sin(const complex<T>&);
template <typename T> __host__ __device__ complex<T> cos(const complex<T>&);
template <typename T> __host__ __device__ complex<T> tan(const complex<T>&);
template <typename T> __host__ __device__ complex<T> sinh(const complex<T>&);
template <typename T> __host__ __device__ complex<T> cosh(const complex<T>&);
template <typename T> __host__ __device__ complex<T> tanh(const complex<T>&);
template <typename T> __host__ __device__ complex<T> asin(const complex<T>&);
template <typename T> __host__ __device__ complex<T> acos(const complex<T>&);
template <typename T> __host__ __device__ complex<T> atan(const complex<T>&);
template <typename T> __host__ __device__ complex<T> asinh(const complex<T>&);
template <typename T> __host__ __device__ complex<T> acosh(const complex<T>&);
template <typename T> __host__ __device__ complex<T> atanh(const complex<T>&);
template <typename T, typename U>
__host__ __device__ complex<T> pow(const complex<T>&, const complex<U>&);
template <typename T> __host__ __device__ complex<T> pow(const complex<T>&, const T&);
template <typename T> __host__ __device__ complex<T> pow(const T&, const complex<T>&);
} // namespace thrust
