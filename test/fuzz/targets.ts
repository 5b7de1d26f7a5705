/**
 * THE list of targets.
 */
import type { Target } from "./target.ts";
import { awsEventStream } from "./targets/aws-event-stream.ts";
import { cel } from "./targets/cel.ts";
import { compressed } from "./targets/compressed.ts";
import { configuration } from "./targets/configuration.ts";
import { connectionEvents } from "./targets/connection-events.ts";
import { forms } from "./targets/forms.ts";
import { gatewayPolicies } from "./targets/gateway-policies.ts";
import { guardStream } from "./targets/guard-stream.ts";
import { httpRequestEdge } from "./targets/http-request-edge.ts";
import { http1Response } from "./targets/http1-response.ts";
import { http2Frames } from "./targets/http2-frames.ts";
import { http2Heads } from "./targets/http2-heads.ts";
import { jsonReader } from "./targets/json-reader.ts";
import { jsonRpc } from "./targets/json-rpc.ts";
import { jsonScanner } from "./targets/json-scanner.ts";
import { lineSplitter } from "./targets/line-splitter.ts";
import { llmForms } from "./targets/llm-forms.ts";
import { llmRequest } from "./targets/llm-request.ts";
import { oauthForms } from "./targets/oauth-forms.ts";
import { openApiRequests } from "./targets/openapi-requests.ts";
import { proxyHeaders } from "./targets/proxy-headers.ts";
import { rateLimitAnswers } from "./targets/rate-limit-answers.ts";
import { redactor } from "./targets/redactor.ts";
import { regularExpressions } from "./targets/regular-expressions.ts";
import { requestPaths } from "./targets/request-paths.ts";
import { routes } from "./targets/routes.ts";
import { serverSentEvents } from "./targets/server-sent-events.ts";
import { tokenBuckets } from "./targets/token-buckets.ts";
import { tokens } from "./targets/tokens.ts";
import { translations } from "./targets/translations.ts";
import { xmlElements } from "./targets/xml-elements.ts";
import { yaml } from "./targets/yaml.ts";

export const targets: readonly Target[] = [
  http1Response,
  httpRequestEdge,
  http2Heads,
  http2Frames,
  connectionEvents,
  proxyHeaders,
  jsonReader,
  jsonScanner,
  llmRequest,
  llmForms,
  jsonRpc,
  serverSentEvents,
  guardStream,
  awsEventStream,
  lineSplitter,
  oauthForms,
  openApiRequests,
  redactor,
  tokenBuckets,
  rateLimitAnswers,
  requestPaths,
  routes,
  cel,
  tokens,
  configuration,
  gatewayPolicies,
  translations,
  regularExpressions,
  compressed,
  forms,
  xmlElements,
  yaml,
];
