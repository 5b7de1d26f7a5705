/**
 * The endpoints of providers, by what they cost, and ways in which a client can spell their paths.
 */

export interface Endpoint {
  readonly path: string;
  readonly cost: "free" | "metered" | "unmetered";
}

/** OpenAI, Azure, Mistral, and others that speak their API. */
const FREE = [
  ...["/v1/files", "/v1/uploads", "/v1/uploads/u/parts", "/v1/uploads/u/complete", "/v1/uploads/u/cancel"],
  ...["/v1/batches/b/cancel", "/v1/responses/r/cancel", "/v1/assistants", "/v1/assistants/a", "/v1/threads"],
  ...["/v1/threads/t", "/v1/threads/t/messages", "/v1/threads/t/messages/m", "/v1/threads/t/runs/r"],
  ...["/v1/threads/t/runs/r/cancel", "/v1/conversations/c/items", "/v1/containers/c/files", "/v1/evals"],
  ...["/v1/evals/e/runs/r/cancel", "/v1/fine_tuning/jobs/j/cancel", "/v1/skills", "/v1/responses/input_tokens"],
  ...["/v1/messages/count_tokens", "/v1/messages/batches/b/cancel", "/v1beta/models/g:countTokens"],
  ...["/upload/v1beta/files", "/v1beta/files", "/v1beta/fileSearchStores", "/model/m/count-tokens"],
];
const METERED = [
  ...["/v1/chat/completions", "/v1/responses", "/v1/responses/compact", "/v1/embeddings", "/v1/completions"],
  ...["/v1/moderations", "/v1/rerank", "/v2/rerank", "/v1/images/generations", "/v1/images/edits"],
  ...["/v1/images/variations", "/v1/audio/speech", "/v1/audio/transcriptions", "/v1/audio/translations"],
  ...["/v1/messages", "/v1beta/interactions", "/v1beta/models/g:generateContent"],
  ...["/v1beta/models/g:streamGenerateContent", "/v1beta/models/g:embedContent", "/v1beta/models/g:predict"],
  ...["/v1beta/models/g:batchEmbedContents", "/v1beta/cachedContents", "/model/m/converse", "/model/m/invoke"],
  ...["/openai/deployments/d/chat/completions", "/v1/conversations", "/v1/conversations/c"],
];
const UNMETERED = [
  ...["/v1/batches", "/v1/messages/batches", "/v1/threads/runs", "/v1/threads/t/runs", "/v1/videos"],
  ...["/v1/threads/t/runs/r/submit_tool_outputs", "/v1/videos/v/remix", "/v1/evals/e/runs", "/v1/fine_tuning/jobs"],
  ...["/v1/fine_tuning/jobs/j/resume", "/v1/fine_tuning/alpha/graders/run", "/v1/vector_stores"],
  ...["/v1/vector_stores/v/search", "/v1/vector_stores/v/files", "/v1/vector_stores/v/file_batches", "/v1/containers"],
  ...["/v1/realtime/client_secrets", "/v1/realtime/sessions", "/v1/realtime/calls", "/openai/v1/batches"],
  ...["/v1/batch/jobs", "/openai/v1/video/generations/jobs", "/v1/embed-jobs", "/async-invoke"],
  ...["/v1/projects/p/locations/l/batchPredictionJobs", "/v1/projects/p/locations/l/tuningJobs"],
  ...["/model-invocation-job", "/guardrail/g/version/1/apply", "/v1beta/fileSearchStores/s:importFile"],
  ...["/v1beta/tunedModels", "/openai/threads/t/runs"],
];
/** Verbs belong to the name of the model, so that they have no other spellings. */
const JOBS = ["g:batchGenerateContent", "g:asyncBatchEmbedContent", "g:predictLongRunning"].map(
  (name) => `/v1beta/models/${name}`,
);

const withCost = (paths: readonly string[], cost: Endpoint["cost"]): Endpoint[] =>
  paths.map((path) => ({ path, cost }));

export const ENDPOINTS: readonly Endpoint[] = [
  ...withCost(FREE, "free"),
  ...withCost(METERED, "metered"),
  ...withCost(UNMETERED, "unmetered"),
];
export const JOB_ENDPOINTS: readonly string[] = JOBS;
export const FREE_ENDPOINTS: readonly string[] = FREE;
export const SPENDING_ENDPOINTS: readonly string[] = [...METERED, ...UNMETERED, ...JOBS];

/** Each returns spellings that some server reads as the same path. */
export const SPELLINGS: readonly ((path: string) => readonly string[])[] = [
  (path) => [path, `/team-a${path}`, `/files${path}`, `/v1/files${path}`],
  (path) => [`${path}/`, path.toUpperCase(), path.replace(/\w+$/, (word) => word.toUpperCase())],
  (path) => [path.replace(/\/(?=[^/]*$)/, "%2F"), path.replace(/\/(?=[^/]*$)/, "%252f")],
  (path) => [`${path};x=1`, `${path}%20`, `${path}%3Bx`, path.replace(/\w$/, (last) => `%25${hex(last)}`)],
];

function hex(character: string): string {
  return character.charCodeAt(0).toString(16);
}
