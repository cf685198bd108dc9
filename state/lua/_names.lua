-- Names of tokens: two that differ by case alone are the same.
-- keys: token_names

-- The name as `token_names` has it.
local function fold_names(name) return string.lower(name) end
