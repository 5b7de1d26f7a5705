/**
 * Runs before `npm pack` and `npm publish`: builds dist/ if the sources have changed since the last build.
 */
import { isBuilt } from "./build-stamp.mjs";
import { installIfMissing, step } from "./steps.mjs";

installIfMissing();
if (!isBuilt()) step("build", process.execPath, ["scripts/build.mjs"], { stdio: ["ignore", 2, 2] });
