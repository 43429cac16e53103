// hip_programs NAME...: runs these programs, or all; one line each. --list: their names.
#include "hip_programs.h"

std::vector<char> compile(const char *source, const std::string &target) {
  hiprtcProgram program;
  CHECK(hiprtcCreateProgram(&program, source, "kernels.hip", 0, nullptr, nullptr) == HIPRTC_SUCCESS, "hiprtcCreateProgram");
  std::string architecture = "--gpu-architecture=" + target;
  const char *options[] = {architecture.c_str(), "-g", "-std=c++17"};
  if (hiprtcCompileProgram(program, 3, options) != HIPRTC_SUCCESS) {
    size_t size = 0;
    hiprtcGetProgramLogSize(program, &size);
    std::string log(size, ' ');
    hiprtcGetProgramLog(program, log.data());
    CHECK(false, "a kernel does not compile: %s", log.c_str());
  }
  size_t size = 0;
  CHECK(hiprtcGetCodeSize(program, &size) == HIPRTC_SUCCESS && size, "hiprtcGetCodeSize");
  std::vector<char> code(size);
  CHECK(hiprtcGetCode(program, code.data()) == HIPRTC_SUCCESS, "hiprtcGetCode");
  CHECK(hiprtcDestroyProgram(&program) == HIPRTC_SUCCESS, "hiprtcDestroyProgram");
  return code;
}

hipFunction_t kernel(const char *source, const char *name, hipModule_t *module) {
  hipDeviceProp_t properties;
  HIP(hipGetDeviceProperties(&properties, 0));
  std::vector<char> code = compile(source, properties.gcnArchName);
  hipModule_t loaded;
  HIP(hipModuleLoadData(&loaded, code.data()));
  if (module) *module = loaded;
  hipFunction_t function;
  HIP(hipModuleGetFunction(&function, loaded, name));
  return function;
}

int main(int count, char **names) {
  int ran = 0;
  for (const HipProgram *table : {memory_programs, kernel_programs, stream_programs, hsa_programs, planted_programs})
    for (const HipProgram *item = table; item->name; item++) {
      bool chosen = count == 1 && table != planted_programs;
      for (int i = 1; i < count; i++) chosen |= !std::strcmp(names[i], item->name);
      if (count == 2 && !std::strcmp(names[1], item->rule ? "--planted" : "--list"))
        std::printf(item->rule ? "%s %s\n" : "%s\n", item->name, item->rule);
      if (!chosen) continue;
      item->body();
      if (table != hsa_programs) HIP(hipDeviceSynchronize());
      std::printf("ok %s\n", item->name), std::fflush(stdout);
      ran++;
    }
  return ran || count == 2 ? 0 : 1;
}
