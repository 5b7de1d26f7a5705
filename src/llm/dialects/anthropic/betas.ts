/**
 * Anthropic's beta features at other houses: there the header of its clients becomes a member of the body, and a name
 * that the house does not know fails the whole request. So only known names go on; what the others ask for is left out.
 */

/** What Bedrock takes in `anthropic_beta`. */
const BEDROCK = new Set([
  ...["computer-use-2024-10-22", "computer-use-2025-01-24", "computer-use-2025-11-24", "output-128k-2025-02-19"],
  ...["token-efficient-tools-2025-02-19", "interleaved-thinking-2025-05-14", "dev-full-thinking-2025-05-14"],
  ...["fine-grained-tool-streaming-2025-05-14", "context-1m-2025-08-07", "context-management-2025-06-27"],
  ...["effort-2025-11-24", "tool-search-tool-2025-10-19", "tool-examples-2025-10-29"],
]);

/** Members of a request that only a beta explains. */
const MEMBERS: readonly (readonly [member: string, beta: string])[] = [
  ["context_management", "context-management-2025-06-27"],
];

export function betasOf(header: string | undefined): readonly string[] {
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

/** The members that stay behind with their beta. */
export function membersWithoutBeta(betas: readonly string[]): readonly string[] {
  return MEMBERS.filter(([, beta]) => !betas.includes(beta)).map(([member]) => member);
}
