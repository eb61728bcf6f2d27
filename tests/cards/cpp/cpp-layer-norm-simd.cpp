extern "C" void card(void** p, const long long* n, void*) {
  layer_norm((float*)p[0], (float*)p[1], (float*)p[2], (float*)p[3], n[0], n[1], 1e-5f);
}
