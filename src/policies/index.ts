/**
 * Lists the policies in the order of their request hooks, each with the reason for its position.
 */
import type { PolicyDefinition } from "../core/policy.ts";
import { ai } from "./ai/policy.ts";
import { apiKey } from "./api-key/policy.ts";
import { authorization } from "./authorization/policy.ts";
import { backendAuth } from "./backend-auth/policy.ts";
import { backendTls } from "./backend-tls/policy.ts";
import { basicAuth } from "./basic-auth/policy.ts";
import { budgets } from "./budgets/policy.ts";
import { buffer } from "./buffer/policy.ts";
import { cors } from "./cors/policy.ts";
import { csrf } from "./csrf/policy.ts";
import { delay } from "./delay/policy.ts";
import { directResponse } from "./direct-response/policy.ts";
import { endpointPicker } from "./endpoint-picker/policy.ts";
import { extAuthz } from "./ext-authz/policy.ts";
import { extProc } from "./ext-proc/policy.ts";
import { jwtAuth } from "./jwt-auth/policy.ts";
import { mcpAuthentication } from "./mcp-authentication/policy.ts";
import { mcpAuthorization } from "./mcp-authorization/policy.ts";
import { mcpGuardrails } from "./mcp-guardrails/policy.ts";
import { oidc } from "./oidc/policy.ts";
import { rateLimit } from "./rate-limit/policy.ts";
import { requestHeaderModifier } from "./request-header-modifier/policy.ts";
import { requestMirror } from "./request-mirror/policy.ts";
import { requestRedirect } from "./request-redirect/policy.ts";
import { responseHeaderModifier } from "./response-header-modifier/policy.ts";
import { retry } from "./retry/policy.ts";
import { sessionPersistence } from "./session-persistence/policy.ts";
import { timeout } from "./timeout/policy.ts";
import { transformations } from "./transformations/policy.ts";
import { urlRewrite } from "./url-rewrite/policy.ts";

export const policies: readonly PolicyDefinition[] = [
  // These have access hooks, which decide whether a request is admitted, or count it in limits after that.
  cors, // runs first, because a preflight has no credentials and every later error response needs the headers
  csrf, // runs before authentication, because a browser adds the credentials of its user to the request of any page
  mcpAuthentication, // serves the well-known documents, which need no token, then requires a token
  jwtAuth, // verifies tokens on routes that need no MCP login
  oidc, // authenticates users with a browser
  basicAuth, // runs after the token checks; each authentication policy of a route must pass
  apiKey, // runs after the token checks, like basicAuth
  authorization, // reads the results of the policies above, so `jwt.*` is verified or absent
  extAuthz, // calls the service only for requests that the rules admit
  mcpAuthorization, // decides which MCP items are visible; the backend applies it to each name
  mcpGuardrails, // collects processors, and copies the headers before the gateway adds credentials; the backend calls them
  budgets, // runs at admission, before a rate limit service, which cannot refund
  rateLimit, // runs at admission, so a request rejected earlier is not charged
  // These have shape hooks, which change the request or respond to it.
  sessionPersistence, // takes its token out of the request before policies that read or send the headers
  buffer, // reads the body first, before a policy with another limit reads it
  extProc, // sees the client's request and body, before the gateway adds credentials or rewrites it
  endpointPicker, // sees the request of one attempt, before the gateway adds credentials
  ai, // collects prompt rules, which the backend applies in each dialect
  backendAuth, // sets the backend's credential; a transformation may still use it
  transformations, // may read authentication results, and runs before the modifiers below
  requestHeaderModifier, // runs after transformations, so fixed headers override computed headers
  urlRewrite, // runs after all policies that read the client's original path
  requestMirror, // copies the request after the rewrites above
  requestRedirect, // runs after the rewrites, whose results the target may include
  delay, // waits before a response, also before a direct response
  directResponse, // responds for a route without a backend, or to the requests that meet a condition
  responseHeaderModifier, // changes responses first, because response hooks run in reverse order
  timeout, // has only settings, so the position does not matter
  retry, // has only settings
  backendTls, // has only settings
];
