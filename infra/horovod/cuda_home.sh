#!/bin/sh
# `cuda_home.sh NVIDIA TARGET`: links NVIDIA's Python packages together to a folder that looks like a CUDA toolkit.
#
# Runtime and headers are of CUDA 12, for which TensorFlow's wheel is made. Its packages hold no nvcc; the one of
# CUDA 13 compiles against them, with its own crt/ headers, and its kernels need a driver of CUDA 13 (580 or newer).
set -eu
nvidia=$(cd "$1" && pwd) target=$2
rm -rf "$target"
mkdir -p "$target/include" "$target/lib64"
cp -rs "$nvidia/cu13/bin" "$nvidia/cu13/nvvm" "$target"
for part in cuda_runtime cuda_cccl nccl; do
  cp -rs "$nvidia/$part/include/." "$target/include"
done
rm -rf "$target/include/crt"
cp -rs "$nvidia/cu13/include/crt" "$nvidia/cu13/include/fatbinary_section.h" "$target/include"
cp -s "$nvidia"/cuda_runtime/lib/* "$nvidia"/nccl/lib/libnccl.so.2 "$target/lib64"
ln -s libcudart.so.12 "$target/lib64/libcudart.so"
ln -s libnccl.so.2 "$target/lib64/libnccl.so"
