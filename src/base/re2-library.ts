/**
 * The library for regular expressions in RE2 syntax, which `regex.ts` loads on demand.
 */
import { RE2JS } from "@bufbuild/re2";

export { RE2JS };
