// SPDX-License-Identifier: Apache-2.0
#include <splitzip/splitzip.h>

int main() { return splitzip_version()[0] == '\0'; }
