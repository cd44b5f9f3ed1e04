// This file has functions without a body be allowed in the package: the runtime has them.
