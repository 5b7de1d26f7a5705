/**
 * THE list of backend kinds: the key under `backends[]` chooses one. Validation, the JSON schema and the
 * documentation derive from it.
 */
import type { BackendDefinition } from "../core/backend.ts";
import { host } from "./host/backend.ts";

export const backends: readonly BackendDefinition[] = [host];
