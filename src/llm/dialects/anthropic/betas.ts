/**
 * Selects the Anthropic beta features that Bedrock supports. Bedrock rejects the whole request if it contains an unknown
 * beta name, so only supported names are forwarded.
 */

const BEDROCK = new Set([
  ...["computer-use-2024-10-22", "computer-use-2025-01-24", "computer-use-2025-11-24", "output-128k-2025-02-19"],
  ...["token-efficient-tools-2025-02-19", "interleaved-thinking-2025-05-14", "dev-full-thinking-2025-05-14"],
  ...["fine-grained-tool-streaming-2025-05-14", "context-1m-2025-08-07", "context-management-2025-06-27"],
  ...["effort-2025-11-24", "tool-search-tool-2025-10-19", "tool-examples-2025-10-29"],
]);

const MEMBERS: readonly (readonly [member: string, beta: string])[] = [
  ["context_management", "context-management-2025-06-27"],
];

export function parseBetas(header: string | undefined): readonly string[] {
  return header === undefined
    ? []
    : header
        .split(",")
        .map((name) => name.trim())
        .filter((name) => name !== "");
}

export function bedrockBetas(betas: readonly string[]): readonly string[] {
  return betas.filter((name) => BEDROCK.has(name));
}

export function membersWithoutBeta(betas: readonly string[]): readonly string[] {
  return MEMBERS.filter(([, beta]) => !betas.includes(beta)).map(([member]) => member);
}
