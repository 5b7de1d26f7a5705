/**
 * THE list of policies, in the order in which they run, each with the reason for its place.
 * Everything else derives from it: validation, the JSON schema, docs/, effectivePolicy, the config dump.
 */
import type { PolicyDefinition } from "../core/policy.ts";
import { ai } from "./ai/policy.ts";
import { apiKey } from "./api-key/policy.ts";
import { authorization } from "./authorization/policy.ts";
import { backendAuth } from "./backend-auth/policy.ts";
import { backendTls } from "./backend-tls/policy.ts";
import { basicAuth } from "./basic-auth/policy.ts";
import { budgets } from "./budgets/policy.ts";
import { cors } from "./cors/policy.ts";
import { directResponse } from "./direct-response/policy.ts";
import { extAuthz } from "./ext-authz/policy.ts";
import { jwtAuth } from "./jwt-auth/policy.ts";
import { mcpAuthentication } from "./mcp-authentication/policy.ts";
import { mcpAuthorization } from "./mcp-authorization/policy.ts";
import { oidc } from "./oidc/policy.ts";
import { rateLimit } from "./rate-limit/policy.ts";
import { requestHeaderModifier } from "./request-header-modifier/policy.ts";
import { requestMirror } from "./request-mirror/policy.ts";
import { requestRedirect } from "./request-redirect/policy.ts";
import { responseHeaderModifier } from "./response-header-modifier/policy.ts";
import { retry } from "./retry/policy.ts";
import { timeout } from "./timeout/policy.ts";
import { transformations } from "./transformations/policy.ts";
import { urlRewrite } from "./url-rewrite/policy.ts";

/** Who may come in. Limits (`admit` hooks) are asked after these, so that a refused request costs nothing. */
export const accessPolicies: readonly PolicyDefinition[] = [
  cors, // first: a preflight carries no credentials, and every later refusal needs the headers
  mcpAuthentication, // answers the well-known documents, which need no token, then asks for one
  jwtAuth, // the same check on other routes
  oidc, // the same for people with a browser
  basicAuth, // after the tokens; where several stand on one route, all must be satisfied
  apiKey, // as above
  authorization, // reads what all of the above found, so that `jwt.*` is verified or absent
  extAuthz, // a service is asked only for what the rules admit
  mcpAuthorization, // says what of the MCP servers may be used; the backend applies it to each name
  budgets, // at admission too; before a rate limit service, which cannot give back
  rateLimit, // its hooks run at admission: a refused request has cost nothing by then
];

/** What becomes of a request that was admitted. */
export const shapePolicies: readonly PolicyDefinition[] = [
  ai, // only says what is wanted of prompts and answers; the backend, which knows the dialects, does it
  backendAuth, // the backend's credential; a transformation may still build on it
  transformations, // may read what authentication found, and feeds the modifiers below
  requestHeaderModifier, // fixed headers win over computed ones
  urlRewrite, // after everything that reads the path as the client sent it
  requestMirror, // a copy of what the backend will get
  requestRedirect, // answers; after the rewrites it may build on
  directResponse, // the last resort of a route without a backend
  responseHeaderModifier, // on the way back: the outermost of the shaping policies
  timeout, // settings of the pipeline; the place does not matter
  retry, // settings of the pipeline
  backendTls, // settings of the connection pool
];

export const policies: readonly PolicyDefinition[] = [...accessPolicies, ...shapePolicies];
