/**
 * Before `npm pack` and `npm publish`: dist/ is what the sources are. What was built and has not changed is packed as
 * it is.
 */
import { isBuilt } from "./build-stamp.mjs";
import { installIfMissing, step } from "./steps.mjs";

installIfMissing();
if (!isBuilt()) step("build", process.execPath, ["scripts/build.mjs"], { stdio: ["ignore", 2, 2] });
