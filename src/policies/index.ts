/**
 * THE list of policies, in the order in which they run, each with the reason for its place.
 * Everything else derives from it: validation, the JSON schema, docs/, effectivePolicy, the config dump.
 */
import type { PolicyDefinition } from "../core/policy.ts";
import { backendTls } from "./backend-tls/policy.ts";
import { cors } from "./cors/policy.ts";
import { directResponse } from "./direct-response/policy.ts";
import { requestHeaderModifier } from "./request-header-modifier/policy.ts";
import { requestRedirect } from "./request-redirect/policy.ts";
import { responseHeaderModifier } from "./response-header-modifier/policy.ts";
import { retry } from "./retry/policy.ts";
import { timeout } from "./timeout/policy.ts";
import { transformations } from "./transformations/policy.ts";
import { urlRewrite } from "./url-rewrite/policy.ts";

/** Who may come in. Limits (`admit` hooks) are asked after these, so that a refused request costs nothing. */
export const accessPolicies: readonly PolicyDefinition[] = [
  cors, // first: a preflight carries no credentials, and every later refusal needs the headers
];

/** What becomes of a request that was admitted. */
export const shapePolicies: readonly PolicyDefinition[] = [
  transformations, // may read what authentication found, and feeds the modifiers below
  requestHeaderModifier, // fixed headers win over computed ones
  urlRewrite, // after everything that reads the path as the client sent it
  requestRedirect, // answers; after the rewrites it may build on
  directResponse, // the last resort of a route without a backend
  responseHeaderModifier, // on the way back: the outermost of the shaping policies
  timeout, // settings of the pipeline; the place does not matter
  retry, // settings of the pipeline
  backendTls, // settings of the connection pool
];

export const policies: readonly PolicyDefinition[] = [...accessPolicies, ...shapePolicies];
