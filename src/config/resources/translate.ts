/**
 * All documents of one load → additions to the standalone configuration, and the status of every policy.
 */
import type { ResourceInput, ResourceResult } from "./documents.ts";

export function translateResources(_input: ResourceInput): ResourceResult {
  return { gateways: [], routes: [], attachments: [], closures: [], policies: [], problems: [] };
}
