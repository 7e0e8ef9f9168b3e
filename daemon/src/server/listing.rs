//! All pages of tools, resources, prompts; repairs item by item.
